// A rank of a test: joins by whatever environment it was given, plays a part, and leaves.
//
//   join_rank sum            all_reduce of rank + 1; prints "rank 1 of 3: 6"
//   join_rank die RANK       after a barrier that rank is killed; the others wait for it
//   join_rank fail RANK      after a barrier that rank throws; the others wait for it
//   join_rank mixed CALLS    small calls of every kind, each result checked; prints "rank 1 of 3:
//                            10000 calls, 4096 bytes more at the end than after a tenth"
//   join_rank large          all_reduce and broadcast of 2^31 + 8 bytes
//
// LOCKSTEP_ENGINE=mpi, under an mpirun: tensors travel by that MPI.

#include <csignal>
#include <cstdio>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/launch/mpi_start.h"
#include "lockstep/worker/environment.h"
#include "tests/net/large_count.h"
#include "tests/net/mixed_calls.h"

namespace {

using lockstep::net::Endpoint;

int play(Endpoint& endpoint, const std::string& part, const std::string& argument) {
  const auto world = endpoint.world();
  if (part == "sum") {
    float value = static_cast<float>(endpoint.rank() + 1);
    world->all_reduce(&value, 1, lockstep::net::DType::f32);
    // One write a line: launchers mix the ranks' output.
    std::printf("rank %d of %d: %g\n", endpoint.rank(), endpoint.size(), value);
    return 0;
  }
  if (part == "mixed") {
    const int64_t calls = std::stoll(argument);
    const int64_t growth = lockstep::net::testing::MixedCalls(world, 13).growth(calls);
    std::printf("rank %d of %d: %lld calls, %lld bytes more at the end than after a tenth\n",
                endpoint.rank(), endpoint.size(), static_cast<long long>(calls),
                static_cast<long long>(growth));
    return 0;
  }
  if (part == "large") {
    const lockstep::net::testing::OwnMemory memory(lockstep::net::testing::kLargeCount);
    const std::string wrong = lockstep::net::testing::large_count_wrong(*world, memory.data());
    std::printf("rank %d of %d: large%s\n", endpoint.rank(), endpoint.size(), wrong.c_str());
    return wrong.empty() ? 0 : 1;
  }
  world->barrier();
  if (endpoint.rank() == std::stoi(argument)) {
    if (part == "die") std::raise(SIGKILL);
    throw lockstep::TrainingError("loss is nan");
  }
  world->barrier();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    auto environment = lockstep::worker::read_environment();
    if (environment.engine == "mpi") {
      environment.endpoint.engine = lockstep::net::load_mpi_engine(
          lockstep::launch::require_mpi_here(lockstep::launch::own_variable));
    }
    const std::string part = argc > 1 ? argv[1] : "sum";
    const std::string argument = argc > 2 ? argv[2] : "";
    return lockstep::worker::run_ranks(
        environment, [&](Endpoint& endpoint) { return play(endpoint, part, argument); });
  } catch (const lockstep::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  }
}
