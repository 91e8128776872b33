// A small rank for jobs of `lockstep run`, without LibTorch: test_rank PART ARGS...

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/net/world.h"

namespace lockstep::testing {
namespace {

int number_of(const char* name) { return std::atoi(std::getenv(name)); }

std::shared_ptr<net::Endpoint> join() {
  const double seconds = std::strtod(std::getenv("LOCKSTEP_TIMEOUT_S"), nullptr);
  return net::Endpoint::join(
      net::Region::attach(number_of("LOCKSTEP_REGION_FD")), number_of("LOCKSTEP_RANK"),
      /*direct_memory=*/false,
      {.timeout = std::chrono::milliseconds(static_cast<int64_t>(1000 * seconds)),
       .oversubscribed = true});
}

/// Runs `body` as a rank does: an error is told to launcher and peers.
template <class Body>
int as_rank(const Body& body) {
  const auto endpoint = join();
  try {
    body(*endpoint);
    endpoint->finish();
    return 0;
  } catch (const Error& error) {
    endpoint->fail(error.what(), error.exit_code());
    return error.exit_code();
  }
}

/// args: how many, who stops before the last of them (-1: nobody). Sums of 100 floats.
int all_reduces(const std::vector<std::string>& args) {
  const int calls = std::stoi(args.at(0));
  const int victim = std::stoi(args.at(1));
  return as_rank([&](net::Endpoint& endpoint) {
    std::vector<float> data(100, 1);
    for (int call = 1; call <= calls; ++call) {
      if (call == calls && endpoint.rank() == victim) raise(SIGSTOP);
      endpoint.world()->all_reduce(data.data(), 100, net::DType::f32);
    }
  });
}

/// args: MiB. Holds that much of the shared heap; prints where the region lies.
int hold_heap(const std::vector<std::string>& args) {
  return as_rank([&](net::Endpoint& endpoint) {
    const int64_t bytes = int64_t{std::stoi(args.at(0))} << 20;
    const net::HeapBlock block = endpoint.world()->allocate(bytes);
    std::memset(block.data(), 1, static_cast<size_t>(bytes));
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      if (line.find("lockstep") != std::string::npos && line.find("rw-s") != std::string::npos) {
        std::printf("%s\n", line.substr(line.find('/')).c_str());
      }
      if (line.find("/dev/shm") != std::string::npos) std::printf("in /dev/shm\n");
    }
    endpoint.world()->barrier();
  });
}

/// args: a rank. That one is struck by a bad address; the others wait for it.
int segfault(const std::vector<std::string>& args) {
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  return as_rank([&](net::Endpoint& endpoint) {
    std::fprintf(stderr, "rank %d is here\n", endpoint.rank());
    endpoint.world()->barrier();
    if (endpoint.rank() == std::stoi(args.at(0))) raise(SIGSEGV);
    endpoint.world()->barrier();
  });
}

}  // namespace
}  // namespace lockstep::testing

int main(int argc, char** argv) {
  const std::string part = argc > 1 ? argv[1] : "";
  const std::vector<std::string> args(argv + std::min(argc, 2), argv + argc);
  if (part == "all_reduces") return lockstep::testing::all_reduces(args);
  if (part == "hold_heap") return lockstep::testing::hold_heap(args);
  if (part == "segfault") return lockstep::testing::segfault(args);
  return 2;
}
