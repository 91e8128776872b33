#include "lockstep/launch/job.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/launch/attempt.h"
#include "lockstep/launch/signal_inbox.h"
#include "lockstep/plan/engines.h"

namespace lockstep::launch {
namespace {

void check(const JobOptions& options) {
  if (options.command.empty()) throw UsageError("a job without a program: nothing to start");
  if (options.ranks < 1) {
    throw UsageError(base::str("-n ", options.ranks, ": a job has at least 1 rank"));
  }
  std::vector<std::string> engines;
  for (const plan::EngineName& engine : plan::kEngines) engines.emplace_back(engine.name);
  if (std::count(engines.begin(), engines.end(), options.engine) == 0) {
    throw UsageError(base::str("there is no engine \"", options.engine,
                               "\".\n  Engines: ", base::joined(engines), "."));
  }
  if (options.max_restarts < 0) {
    throw UsageError(base::str("max_restarts is ", options.max_restarts, ": 0 or more"));
  }
  if (!(options.timeout_s > 0)) {
    throw UsageError(base::str("a timeout of ", options.timeout_s, " s: must be more than 0"));
  }
}

/// Each start has logs of its own.
std::string log_folder_of(const JobOptions& options, int restart) {
  if (options.log_folder.empty() || restart == 0) return options.log_folder;
  std::string folder = base::str(options.log_folder, "/restart_", restart);
  if (mkdir(folder.c_str(), 0755) == 0 || errno == EEXIST) return folder;
  throw EnvironmentError(base::str("cannot make ", folder, ": ", std::strerror(errno)));
}

/// A rank that cannot be started is a result where other nodes wait for one.
JobResult attempt_result(Attempt& attempt, const JobOptions& options) {
  if (options.nodes == nullptr) return attempt.run();
  try {
    return attempt.run();
  } catch (const Error& error) {
    options.nodes->failed_here(error.what());
    return {error.exit_code(), error.what()};
  }
}

/// Waits for the other nodes; a request to stop is heard meanwhile.
Verdict verdict_of_all(Nodes& nodes, const JobResult& result, bool over, SignalInbox& inbox) {
  constexpr std::chrono::milliseconds kNap{50};
  nodes.finished(result, over);
  for (;;) {
    if (const auto verdict = nodes.verdict()) return *verdict;
    const auto signal = inbox.next(kNap);
    if (!signal || *signal == SIGCHLD || *signal == SIGUSR1 || *signal == SIGUSR2) continue;
    nodes.stop_here(*signal);
    return {false, {128 + *signal, "stopped while the other nodes were still at work."}};
  }
}

}  // namespace

JobResult run_job(const JobOptions& options) {
  try {
    check(options);
    SignalInbox inbox;
    for (int restart = 0;; ++restart) {
      JobOptions start = options;
      if (options.nodes != nullptr) start.share = options.nodes->share();
      Attempt attempt(start, restart, log_folder_of(options, restart), inbox);
      const JobResult result = attempt_result(attempt, options);
      const bool over = result.exit_code == kStoppedOnRequest ||
                        result.exit_code == UsageError("").exit_code() ||
                        attempt.was_asked_to_stop();
      const bool final = over || result.exit_code == 0 || restart == options.max_restarts;
      const Verdict verdict = options.nodes == nullptr
                                  ? Verdict{!final, result}
                                  : verdict_of_all(*options.nodes, result, over, inbox);
      if (!verdict.again) return verdict.result;
      std::fprintf(stderr, "%s\nstarting all ranks again: restart %d of %d\n",
                   verdict.result.error.c_str(), restart + 1, options.max_restarts);
    }
  } catch (const Error& error) {
    return {error.exit_code(), error.what()};
  }
}

}  // namespace lockstep::launch
