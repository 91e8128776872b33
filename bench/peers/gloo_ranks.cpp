// A rank of Gloo as LibTorch carries it (c10d), for collectives.py.
#include <ATen/ops/from_blob.h>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "bench/peers/processes.h"
#include "bench/peers/turns.h"

namespace {

class Gloo final : public lockstep::bench::Peer {
 public:
  Gloo(const std::string& folder, int rank, int size) : rank_(rank), size_(size) {
    const auto options = c10d::ProcessGroupGloo::Options::create();
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
    group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(
        c10::make_intrusive<c10d::FileStore>(folder + "/store", size), rank, size, options);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  float* allocate(int64_t count) override { return lockstep::bench::ordinary_memory(count); }
  void barrier() override { group_->barrier()->wait(); }
  void max(std::vector<double>& values) override {
    std::vector<at::Tensor> tensors = {
        at::from_blob(values.data(), {static_cast<int64_t>(values.size())}, at::kDouble)};
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::MAX;
    group_->allreduce(tensors, options)->wait();
  }
  void all_reduce(float* x, int64_t count) override {
    std::vector<at::Tensor> tensors = {of(x, count)};
    group_->allreduce(tensors)->wait();
  }
  void reduce_scatter(const float* in, float* out, int64_t slice) override {
    std::vector<at::Tensor> outputs = {of(out, slice)};
    std::vector<std::vector<at::Tensor>> inputs = {parts(in, slice)};
    group_->reduce_scatter(outputs, inputs)->wait();
  }
  void all_gather(const float* in, float* out, int64_t slice) override {
    std::vector<at::Tensor> inputs = {of(in, slice)};
    std::vector<std::vector<at::Tensor>> outputs = {parts(out, slice)};
    group_->allgather(outputs, inputs)->wait();
  }
  void all_to_all(const float* in, float* out, int64_t slice) override {
    at::Tensor input = of(in, slice * size_);
    at::Tensor output = of(out, slice * size_);
    std::vector<int64_t> equal;
    group_->alltoall_base(output, input, equal, equal)->wait();
  }
  void broadcast(float* x, int64_t count) override {
    std::vector<at::Tensor> tensors = {of(x, count)};
    group_->broadcast(tensors)->wait();
  }

 private:
  static at::Tensor of(const float* data, int64_t count) {
    return at::from_blob(const_cast<float*>(data), {count}, at::kFloat);
  }
  std::vector<at::Tensor> parts(const float* data, int64_t slice) const {
    std::vector<at::Tensor> tensors;
    for (int r = 0; r < size_; ++r) tensors.push_back(of(data + r * slice, slice));
    return tensors;
  }

  const int rank_;
  const int size_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};

}  // namespace

// FOLDER MAX_BYTES RANKS
int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const int ranks = std::atoi(argv[3]);
  return lockstep::bench::run_on_processes(ranks, [&](int rank) {
    Gloo gloo(argv[1], rank, ranks);
    lockstep::bench::serve(gloo, argv[1], std::strtoll(argv[2], nullptr, 10));
  });
}
