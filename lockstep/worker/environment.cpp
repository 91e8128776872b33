#include "lockstep/worker/environment.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::worker {
namespace {

template <class Number>
Number number_from(const char* name, Number otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr) return otherwise;
  Number value{};
  const char* end = text + std::strlen(text);
  const auto result = std::from_chars(text, end, value);
  if (result.ec != std::errc() || result.ptr != end) {
    throw EnvironmentError(
        base::str(name, "=\"", text, "\" is no number. Start ranks with `lockstep train -n N`."));
  }
  return value;
}

/// Puts a rank's failure where launcher and peers find it. The launcher prints it; stderr has it
/// too only where that is a log, or where nobody else would say it.
void report(const Environment& environment, net::Endpoint* endpoint, const std::string& message,
            int exit_code) {
  if (endpoint != nullptr) endpoint->fail(message, exit_code);
  if (environment.logged || environment.region_fd < 0 || endpoint == nullptr) {
    std::fprintf(stderr, "%s\n", message.c_str());
  }
}

std::shared_ptr<net::Region> region_of(const Environment& environment) {
  if (environment.region_fd >= 0) return net::Region::attach(environment.region_fd);
  return net::Region::in_process(environment.world_size);
}

/// One rank from joining to leaving. Never throws.
int run_rank(const std::shared_ptr<net::Region>& region, const Environment& environment, int rank,
             const std::function<int(net::Endpoint&)>& body) {
  std::shared_ptr<net::Endpoint> endpoint;
  try {
    endpoint =
        net::Endpoint::join(region, rank, environment.engine == "threads", environment.endpoint);
    const int code = body(*endpoint);
    endpoint->finish();
    return code;
  } catch (const Error& error) {
    report(environment, endpoint.get(), error.what(), error.exit_code());
    return error.exit_code();
  } catch (const std::exception& error) {
    const std::string message =
        base::str("[rank ", rank, " of ", environment.world_size, "] ", error.what());
    report(environment, endpoint.get(), message, 1);
    return 1;
  }
}

}  // namespace

Environment read_environment() {
  Environment environment;
  if (const char* engine = std::getenv("LOCKSTEP_ENGINE")) environment.engine = engine;
  environment.rank = number_from("LOCKSTEP_RANK", 0);
  environment.world_size = number_from("LOCKSTEP_WORLD_SIZE", 1);
  environment.region_fd = number_from("LOCKSTEP_REGION_FD", -1);
  environment.console_fd = number_from("LOCKSTEP_CONSOLE_FD", 2);
  environment.logged = number_from("LOCKSTEP_LOGGED", 0) != 0;
  environment.endpoint.timeout = std::chrono::milliseconds(
      static_cast<int64_t>(1e3 * number_from("LOCKSTEP_TIMEOUT_S", 120.0)));
  environment.endpoint.oversubscribed = number_from("LOCKSTEP_OVERSUBSCRIBED", 0) != 0;
  return environment;
}

std::shared_ptr<net::Endpoint> join(const Environment& environment) {
  if (environment.engine == "threads" && environment.world_size > 1) {
    throw UsageError(base::str("engine threads runs all ", environment.world_size,
                               " ranks in one process, which cannot be one of them.\n"
                               "  Start one process a rank: engine shm."));
  }
  return net::Endpoint::join(region_of(environment), environment.rank,
                             environment.engine == "threads", environment.endpoint);
}

int run_ranks(const Environment& environment, const std::function<int(net::Endpoint&)>& body) {
  const std::shared_ptr<net::Region> region = region_of(environment);
  if (environment.engine != "threads") return run_rank(region, environment, environment.rank, body);

  std::mutex mutex;  // guards first_failure
  int first_failure = 0;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < environment.world_size; ++rank) {
    threads.emplace_back([&, rank] {
      const int code = run_rank(region, environment, rank, body);
      const std::lock_guard<std::mutex> lock(mutex);
      if (first_failure == 0) first_failure = code;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return first_failure;
}

}  // namespace lockstep::worker
