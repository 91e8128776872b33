// A rank of a test: joins by whatever environment it was given, plays a part, and leaves.
//
//   join_rank sum            all_reduce of rank + 1; prints "rank 1 of 3: 6"
//   join_rank die RANK       after a barrier that rank is killed; the others wait for it
//   join_rank fail RANK      after a barrier that rank throws; the others wait for it

#include <csignal>
#include <cstdio>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/worker/environment.h"

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
    const auto environment = lockstep::worker::read_environment();
    const std::string part = argc > 1 ? argv[1] : "sum";
    const std::string argument = argc > 2 ? argv[2] : "";
    return lockstep::worker::run_ranks(
        environment, [&](Endpoint& endpoint) { return play(endpoint, part, argument); });
  } catch (const lockstep::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  }
}
