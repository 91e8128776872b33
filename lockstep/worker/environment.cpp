#include "lockstep/worker/environment.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/launch/region_handover.h"
#include "lockstep/worker/rank_signals.h"

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

/// The region, and the options of a rank in it.
struct Meeting {
  std::shared_ptr<net::Region> region;
  net::EndpointOptions options;
};

/// The ranks that this process is.
std::vector<int> ranks_here(const Environment& environment) {
  if (environment.engine != "threads") return {environment.rank};
  std::vector<int> all(static_cast<size_t>(environment.world_size));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

Meeting meet(const Environment& environment) {
  Meeting meeting{nullptr, environment.endpoint};
  if (environment.region_fd >= 0) {
    meeting.region = net::Region::attach(environment.region_fd);
  } else if (environment.engine == "threads" || environment.world_size == 1) {
    meeting.region = net::Region::in_process(environment.world_size);
  } else {
    if (environment.engine != "mpi")
      launch::require_one_host(environment.place, environment.engine);
    const auto options = launch::handover_options(environment.place, environment.endpoint.timeout);
    const launch::Received received =
        environment.place.local_rank == 0
            ? launch::hand_out(options, net::Region::create(environment.world_size))
            : launch::take_over(options);
    meeting.region = received.region;
    meeting.options.oversubscribed = received.oversubscribed;
  }
  tell_in_dumps(meeting.region, ranks_here(environment));
  return meeting;
}

/// One rank from joining to leaving. Never throws.
int run_rank(const Meeting& meeting, const Environment& environment, int rank,
             const std::function<int(net::Endpoint&)>& body) {
  std::shared_ptr<net::Endpoint> endpoint;
  try {
    endpoint =
        net::Endpoint::join(meeting.region, rank, environment.engine == "threads", meeting.options);
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
  environment.place = launch::place_from(launch::own_variable);
  environment.rank = environment.place.rank;
  environment.world_size = environment.place.world_size;
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
  const Meeting meeting = meet(environment);
  return net::Endpoint::join(meeting.region, environment.rank, environment.engine == "threads",
                             meeting.options);
}

int run_ranks(const Environment& environment, const std::function<int(net::Endpoint&)>& body) {
  const Meeting meeting = meet(environment);
  if (environment.engine != "threads") {
    return run_rank(meeting, environment, environment.rank, body);
  }

  std::mutex mutex;  // guards first_failure
  int first_failure = 0;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < environment.world_size; ++rank) {
    threads.emplace_back([&, rank] {
      const int code = run_rank(meeting, environment, rank, body);
      const std::lock_guard<std::mutex> lock(mutex);
      if (first_failure == 0) first_failure = code;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return first_failure;
}

}  // namespace lockstep::worker
