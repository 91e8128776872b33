// A rank of Open MPI or MPICH, for collectives.py. Built with their compiler wrappers:
//   mpicxx.openmpi -O3 -std=c++20 -I. bench/peers/mpi_ranks.cpp -o mpi_ranks.openmpi
#include <mpi.h>

#include "bench/peers/turns.h"

namespace {

class Mpi final : public lockstep::bench::Peer {
 public:
  Mpi() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  float* allocate(int64_t count) override { return lockstep::bench::ordinary_memory(count); }
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }
  void max(std::vector<double>& values) override {
    MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_DOUBLE, MPI_MAX,
                  MPI_COMM_WORLD);
  }
  void all_reduce(float* x, int64_t count) override {
    MPI_Allreduce(MPI_IN_PLACE, x, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  void reduce_scatter(const float* in, float* out, int64_t slice) override {
    MPI_Reduce_scatter_block(in, out, static_cast<int>(slice), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  void all_gather(const float* in, float* out, int64_t slice) override {
    const int n = static_cast<int>(slice);
    MPI_Allgather(in, n, MPI_FLOAT, out, n, MPI_FLOAT, MPI_COMM_WORLD);
  }
  void all_to_all(const float* in, float* out, int64_t slice) override {
    const int n = static_cast<int>(slice);
    MPI_Alltoall(in, n, MPI_FLOAT, out, n, MPI_FLOAT, MPI_COMM_WORLD);
  }
  void broadcast(float* x, int64_t count) override {
    MPI_Bcast(x, static_cast<int>(count), MPI_FLOAT, 0, MPI_COMM_WORLD);
  }

 private:
  int rank_ = 0;
  int size_ = 0;
};

}  // namespace

// FOLDER MAX_BYTES
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 3) MPI_Abort(MPI_COMM_WORLD, 2);
  {
    Mpi mpi;
    lockstep::bench::serve(mpi, argv[1], std::strtoll(argv[2], nullptr, 10));
  }
  MPI_Finalize();
}
