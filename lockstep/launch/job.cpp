#include "lockstep/launch/job.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/launch/attempt.h"
#include "lockstep/launch/signal_inbox.h"

namespace lockstep::launch {
namespace {

void check(const JobOptions& options) {
  if (options.command.empty()) throw UsageError("a job without a program: nothing to start");
  if (options.ranks < 1) {
    throw UsageError(base::str("-n ", options.ranks, ": a job has at least 1 rank"));
  }
  if (options.engine != "shm" && options.engine != "threads") {
    throw UsageError(
        base::str("there is no engine \"", options.engine, "\".\n  Engines: shm and threads."));
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

}  // namespace

JobResult run_job(const JobOptions& options) {
  try {
    check(options);
    SignalInbox inbox;
    for (int restart = 0;; ++restart) {
      Attempt attempt(options, restart, log_folder_of(options, restart), inbox);
      JobResult result = attempt.run();
      const bool final = result.exit_code == 0 || result.exit_code == kStoppedOnRequest ||
                         result.exit_code == UsageError("").exit_code() ||
                         attempt.was_asked_to_stop() || restart == options.max_restarts;
      if (final) return result;
      std::fprintf(stderr, "%s\nstarting all ranks again: restart %d of %d\n", result.error.c_str(),
                   restart + 1, options.max_restarts);
    }
  } catch (const Error& error) {
    return {error.exit_code(), error.what()};
  }
}

std::string executable_folder() {
  std::string path(4096, '\0');
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
  if (length <= 0) {
    throw EnvironmentError(
        base::str("cannot read /proc/self/exe: ", std::strerror(errno), ".\n  Is /proc mounted?"));
  }
  path.resize(length);
  return path.substr(0, path.rfind('/'));
}

}  // namespace lockstep::launch
