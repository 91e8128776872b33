#include "lockstep/launch/job.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/launch/failure_report.h"
#include "lockstep/launch/rank_environment.h"
#include "lockstep/launch/rank_process.h"
#include "lockstep/launch/signal_inbox.h"
#include "lockstep/net/world.h"

namespace lockstep::launch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Of the table of exit codes.
constexpr int kRankDied = 4;
constexpr int kTimeoutOrMismatch = 5;
constexpr int kStoppedOnRequest = 75;

constexpr int kUnknownEnd = 255;

constexpr milliseconds kTimeToQuote{1000};  // after a failure: peers read the message and leave
constexpr milliseconds kTimeToTerm{3000};   // after SIGTERM, before SIGKILL
// A signal could be lost to another thread of the caller's: look at the ranks this often anyway.
constexpr milliseconds kLongestNap{200};

/// A descriptor that is closed with its owner.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

std::string log_path(const std::string& folder, int rank) {
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), "/rank_%04d.log", rank);
  return folder + name.data();
}

int open_log(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) throw EnvironmentError(base::str("cannot write ", path, ": ", std::strerror(errno)));
  return fd;
}

std::string name_of(int signal) {
  if (signal == SIGINT) return "Ctrl-C (SIGINT)";
  return signal == SIGHUP ? "SIGHUP" : "SIGTERM";
}

/// What every rank was doing, for the reader who compares them. Returns the file; empty if it
/// cannot be written: the failure that is being reported matters more.
std::string write_last_operations(const net::Region& region, const std::string& folder) {
  const std::string path = folder + "/last_operations.txt";
  std::ofstream file(path, std::ios::binary);
  for (int rank = 0; rank < region.ranks(); ++rank) {
    file << "rank " << rank << ":\n";
    const std::vector<std::string> operations = region.recent_operations(rank);
    for (const std::string& operation : operations) file << "  " << operation << "\n";
    if (operations.empty()) file << "  none\n";
  }
  file.close();
  return file ? path : "";
}

/// One job from start to end. A step of `run` is: take what signals say, collect ranks that ended,
/// go on with whatever ends the rest.
class Job {
 public:
  explicit Job(const JobOptions& options) : options_(options) {}

  ~Job() {
    kill_all(SIGKILL);
    for (const Process& process : processes_) {
      if (!process.ending) waitpid(process.pid, nullptr, 0);
    }
  }

  JobResult run() {
    start();
    while (running() > 0) {
      if (const auto signal = inbox_.next(nap())) take(*signal);
      collect();
      go_on_ending();
    }
    return result();
  }

 private:
  struct Process {
    pid_t pid = -1;
    std::optional<Ending> ending;
    bool unasked = false;  // it ended before any signal was sent to end it
  };

  bool one_process() const { return options_.engine == "threads"; }

  void start() {
    const std::string program = find_program(options_.command.front());
    const std::vector<int> cores = allowed_cores();
    region_ = net::Region::create(options_.ranks);

    RankPlace place;
    place.engine = options_.engine;
    place.ranks = options_.ranks;
    place.timeout_s = options_.timeout_s;
    place.oversubscribed = options_.ranks > static_cast<int>(cores.size());

    const int count = one_process() ? 1 : options_.ranks;
    for (int rank = 0; rank < count; ++rank) {
      SpawnOptions spawn_options;
      spawn_options.program = program;
      spawn_options.arguments = options_.command;
      spawn_options.signal_mask = inbox_.outer_mask();
      spawn_options.own_stdout = rank == 0;
      // A lone process has no neighbour to keep clear of, and two such jobs would meet on core 0.
      if (count > 1 && !place.oversubscribed) spawn_options.core = cores[rank];

      const bool logged = !options_.log_folder.empty();
      const Descriptor log(logged ? open_log(log_path(options_.log_folder, rank)) : -1);
      const Descriptor console(
          logged && rank == 0 ? fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1) : -1);
      spawn_options.log = log.get();
      place.rank = one_process() ? -1 : rank;
      place.region_fd = region_->fd();
      place.logged = logged;
      place.console_fd = console.get();
      for (const int fd : {place.region_fd, place.console_fd}) {
        if (fd >= 0) spawn_options.inherited.push_back(fd);
      }
      spawn_options.environment = rank_environment(place);
      processes_.push_back({.pid = spawn(spawn_options), .ending = {}});
    }
  }

  int running() const {
    return static_cast<int>(std::count_if(processes_.begin(), processes_.end(),
                                          [](const Process& p) { return !p.ending; }));
  }

  void kill_all(int signal) {
    for (const Process& process : processes_) {
      if (!process.ending) kill(process.pid, signal);
    }
  }

  milliseconds nap() const {
    if (!deadline_) return kLongestNap;
    const auto left = std::chrono::ceil<milliseconds>(*deadline_ - Clock::now());
    return std::clamp(left, milliseconds(0), kLongestNap);
  }

  void take(int signal) {
    if (signal == SIGCHLD) return;
    asked_by_ = signal;
    if (signal == SIGHUP) signal = SIGTERM;  // the terminal is gone: save and stop
    if (stop_signal_ == 0) {
      stop_signal_ = signal;
      if (!options_.stop_notice.empty()) {
        std::fprintf(stderr, "%s\n", options_.stop_notice.c_str());
      }
      kill_all(signal);
      if (!ending_) {
        deadline_ = Clock::now() + milliseconds(std::llround(options_.timeout_s * 1000));
      }
    } else {
      kill_now_ = true;
      stop_signal_ = signal;
      kill_all(SIGKILL);
    }
  }

  /// How the process ended, if it has; it is gone then.
  static std::optional<Ending> reap(pid_t pid) {
    siginfo_t info{};
    if (waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
      // Somebody else in this program has waited for it: how it ended is lost.
      if (errno == ECHILD) return Ending{.exit_code = kUnknownEnd, .signal = 0};
      return std::nullopt;
    }
    if (info.si_pid == 0) return std::nullopt;
    // While the rank is not yet reaped its group's number is still its own: end what it started.
    kill(-pid, SIGKILL);
    int status = 0;
    waitpid(pid, &status, 0);
    return Ending::from_wait_status(status);
  }

  void collect() {
    for (int index = 0; index < static_cast<int>(processes_.size()); ++index) {
      Process& process = processes_[index];
      if (process.ending) continue;
      process.ending = reap(process.pid);
      if (!process.ending) continue;
      process.unasked = !term_sent_ && !kill_now_ && stop_signal_ == 0;
      order_.push_back(index);
      if (failed_ || kill_now_) continue;
      if (is_failure(index)) begin_to_end(index);
      if (process.ending->signal != 0) end_others(index);  // of the signal that was passed on
    }
  }

  net::RankStatus status_of(int rank) const { return region_->status(rank); }

  bool is_failure(int index) const {
    const Ending& ending = *processes_[index].ending;
    if (ending.signal != 0) return ending.signal != stop_signal_;
    if (ending.exit_code == kStoppedOnRequest) return false;
    if (ending.exit_code != 0) return true;
    // A rank that joined the others may not leave without a word: they would wait for it.
    const net::RankStatus status = status_of(index);
    return status.pid != 0 && !status.finished;
  }

  /// The first failure: whose it was is settled here, before the others fail of it.
  void begin_to_end(int index) {
    failed_ = Failed{index, Clock::now(), region_->abort_message()};
    end_others(index);
  }

  void end_others(int index) {
    if (ending_) return;
    ending_ = true;
    region_->abort(abort_text(index, *processes_[index].ending, status_of(index)));
    kill_all(SIGCONT);  // a rank that somebody stopped reads no message
    deadline_ = Clock::now() + kTimeToQuote;
  }

  /// When the time of the present stage is over: SIGTERM, then SIGKILL.
  void go_on_ending() {
    if (!deadline_ || Clock::now() < *deadline_) return;
    if (ending_ && !term_sent_) {
      term_sent_ = true;
      kill_all(SIGTERM);
      deadline_ = Clock::now() + kTimeToTerm;
      return;
    }
    if (!ending_) kill_now_ = true;  // asked to stop, and did not
    kill_all(SIGKILL);
    deadline_.reset();
  }

  JobResult result() const {
    if (failed_) return failure();
    if (kill_now_) return aborted("was stopped at once; what it had not saved is lost");
    bool saved = false;
    for (const Process& process : processes_) {
      if (process.ending->signal != 0) {
        return aborted("stopped the ranks before they could save");
      }
      saved = saved || process.ending->exit_code == kStoppedOnRequest;
    }
    return {saved ? kStoppedOnRequest : 0, ""};
  }

  JobResult aborted(const std::string& how) const {
    return {128 + asked_by_, base::str(name_of(asked_by_), ": the job ", how, ".")};
  }

  JobResult failure() const {
    Failure failure;
    failure.ranks = options_.ranks;
    failure.seconds = std::chrono::duration<double>(failed_->when - started_).count();
    const int rank = cause();
    const int index = one_process() ? 0 : rank;
    failure.status = status_of(rank);
    // A crash is the whole process's, an error that was reported is of the rank that did.
    failure.rank = one_process() && failure.status.error.empty() ? -1 : rank;
    failure.ending = *processes_[index].ending;
    const int code = exit_code_of(failure);
    if (!options_.log_folder.empty()) {
      failure.log = log_path(options_.log_folder, index);
      const std::string operations = write_last_operations(*region_, options_.log_folder);
      // Other failures are one rank's own: what its peers did explains nothing.
      if (code == kRankDied || code == kTimeoutOrMismatch) failure.operations = operations;
    }
    return {code, failure.status.error.empty() ? death_block(failure) : error_block(failure)};
  }

  /// The rank whose failure the others followed.
  int cause() const {
    std::vector<net::RankStatus> statuses;
    for (int rank = 0; rank < options_.ranks; ++rank) statuses.push_back(status_of(rank));
    const int speaker = first_cause(statuses, failed_->rank_message);
    // Peers may notice a death before we do and report it in their words; the dead rank is the
    // cause all the same. An error of any other kind comes before the crashes that follow it.
    const bool may_be_of_a_death = speaker < 0 || statuses[speaker].exit_code == kRankDied ||
                                   statuses[speaker].exit_code == kTimeoutOrMismatch;
    if (may_be_of_a_death && !one_process()) {
      for (const int index : order_) {
        const bool silent = statuses[index].error.empty();
        if (silent && processes_[index].unasked && is_failure(index)) return index;
      }
    }
    return speaker >= 0 ? speaker : failed_->index;
  }

  struct Failed {
    int index = 0;  // the process that was seen to end first
    Clock::time_point when;
    std::string rank_message;  // of the rank that had ended the job by itself; empty: none had
  };

  const JobOptions& options_;
  const Clock::time_point started_ = Clock::now();
  SignalInbox inbox_;
  std::shared_ptr<net::Region> region_;
  std::vector<Process> processes_;  // by rank; threads: one
  std::vector<int> order_;          // in which they were seen to end
  std::optional<Failed> failed_;
  std::optional<Clock::time_point> deadline_;  // when the next harsher step is taken
  bool ending_ = false;                        // the others have been told to leave
  bool term_sent_ = false;
  bool kill_now_ = false;
  int stop_signal_ = 0;  // passed on to the ranks; 0: nobody asked
  int asked_by_ = 0;     // the signal that came
};

}  // namespace

JobResult run_job(const JobOptions& options) {
  try {
    if (options.command.empty()) throw UsageError("a job without a program: nothing to start");
    if (options.ranks < 1) {
      throw UsageError(base::str("-n ", options.ranks, ": a job has at least 1 rank"));
    }
    if (options.engine != "shm" && options.engine != "threads") {
      throw UsageError(
          base::str("there is no engine \"", options.engine, "\".\n  Engines: shm and threads."));
    }
    return Job(options).run();
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
