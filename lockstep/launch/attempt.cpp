#include "lockstep/launch/attempt.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/launch/cores.h"
#include "lockstep/launch/flight_record.h"
#include "lockstep/launch/free_port.h"
#include "lockstep/launch/process_state.h"

namespace lockstep::launch {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTimeToQuote{1000};  // after a failure: peers read the message and leave
constexpr milliseconds kTimeToTerm{3000};   // after SIGTERM, before SIGKILL
// A signal could be lost to another thread of the caller's: look at the ranks this often anyway.
constexpr milliseconds kLongestNap{200};
// Peers of a stopped rank run out of patience at the same time, and have more to tell.
constexpr milliseconds kPeersFirst{400};

milliseconds milliseconds_of(double seconds) { return milliseconds(std::llround(seconds * 1000)); }

Descriptor open_log(const std::string& path) {
  Descriptor log(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644));
  if (log.get() >= 0) return log;
  throw EnvironmentError(base::str("cannot write ", path, ": ", std::strerror(errno)));
}

}  // namespace

std::string log_path(const std::string& folder, int rank) {
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), "/rank_%04d.log", rank);
  return folder + name.data();
}

Attempt::Attempt(const JobOptions& options, int restart, std::string log_folder, SignalInbox& inbox)
    : options_(options), restart_(restart), log_folder_(std::move(log_folder)), inbox_(inbox) {}

JobResult Attempt::run() {
  start();
  while (ranks_.running() > 0) {
    const auto signal = inbox_.next(nap(), output_ ? output_->wanted() : std::vector<pollfd>{});
    if (signal) {
      take(*signal);
      const bool to_stop = *signal == SIGINT || *signal == SIGTERM || *signal == SIGHUP;
      if (options_.nodes != nullptr && to_stop) options_.nodes->stop_here(stop_signal_);
    }
    if (output_) output_->serve();
    collect();
    hear_nodes();  // after our own dead: peers elsewhere may have noticed them first
    look_for_stopped();
    go_on_ending();
  }
  if (output_) show_the_rest();
  return result();
}

bool Attempt::is_shown(int index) const {
  return log_folder_.empty() || options_.tee || index == 0;
}

RankPlace Attempt::place_of_all() const {
  const Share& share = options_.share;
  RankPlace place;
  place.engine = options_.engine;
  place.ranks = world_size();
  place.local_ranks = share.local_size > 0 ? share.local_size : options_.ranks;
  place.node_rank = share.node_rank;
  place.restart_count = restart_;
  place.max_restarts = options_.max_restarts;
  place.job_id = share.job_id.empty()
                     ? base::str(getpid(), "-", started_.time_since_epoch().count() / 1000)
                     : share.job_id;
  place.master_host = share.master_host;
  if (share.master_port >= 0) {
    place.master_port = share.master_port > 0 ? share.master_port : free_port();
  }
  place.timeout_s = options_.timeout_s;
  place.oversubscribed = share.oversubscribed || options_.ranks > cores_at_full_speed();
  const bool all_here = share.region != nullptr || options_.ranks == world_size();
  if (all_here) place.region_fd = region_->fd();
  place.logged = !log_folder_.empty();
  return place;
}

void Attempt::start() {
  const std::string program = find_program(options_.command.front());
  // Of a job that is not all on this host no rank gets it; it serves the reports.
  region_ = options_.share.region ? options_.share.region : net::Region::create(world_size());
  const RankPlace place = place_of_all();
  const int count = one_process() ? 1 : options_.ranks;
  // A lone rank's words need no sorting: it keeps this process's terminal.
  if (options_.output == Output::lines && (count > 1 || !log_folder_.empty())) {
    output_ = std::make_unique<RankOutput>();
  }
  // A lone process has no neighbour to keep clear of, and two such jobs would meet on core 0.
  // Nor do launchers that share this host choose the same cores.
  const bool alone = options_.nodes == nullptr || options_.share.region == nullptr;
  const bool bind = options_.bind && count > 1 && alone && !place.oversubscribed;
  const std::vector<int> cores =
      bind ? cores_of_ranks(count) : std::vector<int>(static_cast<size_t>(count), -1);
  for (int index = 0; index < count; ++index) {
    start_rank(index, place, program, cores[static_cast<size_t>(index)]);
  }
  if (options_.guard) ranks_.guard();
}

void Attempt::start_rank(int index, RankPlace place, const std::string& program, int core) {
  place.rank = one_process() ? -1 : rank_of(index);
  place.local_rank = one_process() ? -1 : options_.share.first_local_rank + index;
  SpawnOptions spawning;
  spawning.program = program;
  spawning.arguments = options_.command;
  spawning.signal_mask = inbox_.outer_mask();
  spawning.core = core;

  Descriptor log;
  if (!log_folder_.empty()) log = open_log(log_path(log_folder_, rank_of(index)));
  Descriptor console;
  RankOutput::Ends ends;  // closed when the rank has them
  if (output_ && is_shown(index)) {
    const bool alone = options_.ranks == 1 || (!log_folder_.empty() && !options_.tee);
    ends =
        output_->add_rank(alone ? "" : base::str("[rank ", rank_of(index), "] "), std::move(log));
    spawning.out = ends.out.get();
    spawning.err = ends.err.get();
  } else {
    spawning.err = log.get();
    if (output_) {
      spawning.out = log.get();
    } else if (index > 0) {
      spawning.out = log.get() >= 0 ? log.get() : STDERR_FILENO;
    }
    if (log.get() >= 0 && index == 0) {
      console.reset(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
    }
  }
  place.console_fd = console.get();
  for (const int fd : {place.region_fd, place.console_fd}) {
    if (fd >= 0) spawning.inherited.push_back(fd);
  }
  spawning.environment = rank_environment(place);
  ranks_.add(spawn(spawning));
}

milliseconds Attempt::nap() const {
  if (!deadline_) return kLongestNap;
  const auto left = std::chrono::ceil<milliseconds>(*deadline_ - Clock::now());
  return std::clamp(left, milliseconds(0), kLongestNap);
}

void Attempt::take(int signal) {
  if (signal == SIGCHLD) return;
  if (signal == SIGUSR1 || signal == SIGUSR2) return pass_on(signal);
  asked_by_ = signal;
  const bool again = stop_signal_ != 0;
  stop_signal_ = signal == SIGHUP ? SIGTERM : signal;  // the terminal is gone: save and stop
  if (again || signal == SIGQUIT) {
    kill_now_ = true;
    ranks_.send_all(SIGKILL);
    return;
  }
  if (!options_.stop_notice.empty()) std::fprintf(stderr, "%s\n", options_.stop_notice.c_str());
  ranks_.send_all(stop_signal_);
  if (!ending_) deadline_ = Clock::now() + milliseconds_of(options_.timeout_s);
}

void Attempt::pass_on(int signal) {
  std::vector<std::string> deaf;
  for (int index = 0; index < ranks_.count(); ++index) {
    if (ranks_.ending(index)) continue;
    // The default would end the rank: it may not have come so far yet, or not know the signal.
    if (catches(ranks_.pid(index), signal)) {
      ranks_.send(index, signal);
    } else {
      deaf.push_back(std::to_string(rank_of(index)));
    }
  }
  const char* name = signal == SIGUSR1 ? "SIGUSR1" : "SIGUSR2";
  if (!deaf.empty()) {
    std::fprintf(stderr, "%s: not passed on to rank %s, which would end by it.\n", name,
                 base::joined(deaf).c_str());
  }
  if (signal != SIGUSR2) return;
  const std::string file = log_folder_.empty() ? "" : write_flight_record(*region_, log_folder_);
  if (file.empty()) {
    std::fprintf(stderr, "SIGUSR2: the last operations of every rank:\n%s",
                 flight_record(*region_).c_str());
  } else {
    std::fprintf(stderr, "SIGUSR2: stacks are in the ranks' logs, the last operations in %s\n",
                 file.c_str());
  }
}

void Attempt::hear_nodes() {
  if (options_.nodes == nullptr || ending_) return;
  const NodeEvent event = options_.nodes->poll();
  if (event.signal != 0 && stop_signal_ == 0) take(event.signal);
  if (event.failure.empty() || failed_) return;
  elsewhere_ = event.failure;
  end_others(elsewhere_);
}

void Attempt::collect() {
  for (const int index : ranks_.collect()) {
    if (failed_ || kill_now_) continue;
    // Other nodes may hear of an error from their own ranks before the rank that made it is gone.
    if (!elsewhere_.empty() && !has_erred(index)) continue;
    const Ending& ending = *ranks_.ending(index);
    if (is_failure(index)) {
      begin_to_end(index, Clock::duration(0));
    } else if (ending.signal != 0) {  // of the signal that was passed on
      end_others(abort_text(rank_of(index), ending, status_of(index)));
    }
  }
}

bool Attempt::is_failure(int index) const {
  if (!ranks_.ending(index)) return false;
  const Ending& ending = *ranks_.ending(index);
  if (ending.signal != 0) return ending.signal != stop_signal_;
  if (ending.exit_code == kStoppedOnRequest) return false;
  // So shells tell that they, or what they ran, ended by the signal that was passed on.
  if (stop_signal_ != 0 && ending.exit_code == 128 + stop_signal_) return false;
  if (ending.exit_code != 0) return true;
  // A rank that joined the others may not leave without a word: they would wait for it.
  const net::RankStatus status = status_of(index);
  return status.pid != 0 && !status.finished;
}

/// By itself: an error about its peers may be an echo of what another node has told.
bool Attempt::has_erred(int index) const {
  const net::RankStatus status = status_of(index);
  return is_failure(index) && !status.error.empty() && status.exit_code != kRankDied &&
         status.exit_code != kTimeoutOrMismatch;
}

void Attempt::look_for_stopped() {
  const auto now = Clock::now();
  if (ending_ || failed_ || kill_now_ || now < next_look_) return;
  next_look_ = now + kLongestNap;
  const Clock::duration patience = milliseconds_of(options_.timeout_s) + kPeersFirst;
  const int index = ranks_.stopped_longer_than(patience);
  if (index >= 0) begin_to_end(index, patience);
}

/// The first failure: whose it was is settled here, before the others fail of it.
void Attempt::begin_to_end(int index, Clock::duration stopped) {
  failed_ = Failed{.index = index,
                   .when = Clock::now(),
                   .rank_message = region_->abort_message(),
                   .stopped = stopped,
                   .waits = waits_text(*region_),
                   .running = {}};
  for (int other = 0; other < ranks_.count(); ++other) {
    failed_->running.push_back(!ranks_.ending(other));
  }
  end_others(stopped > Clock::duration(0)
                 ? base::str("rank ", rank_of(index), " was stopped for too long")
                 : abort_text(rank_of(index), *ranks_.ending(index), status_of(index)));
  if (stopped > Clock::duration(0)) ranks_.send(index, SIGTERM);
}

void Attempt::end_others(const std::string& why) {
  if (ending_) return;
  ending_ = true;
  region_->abort(why);
  if (options_.nodes != nullptr && elsewhere_.empty()) options_.nodes->failed_here(why);
  for (int index = 0; index < ranks_.count(); ++index) {
    // Who is not of the region reads no message there.
    if (!one_process() && status_of(index).pid == 0) ranks_.send(index, SIGTERM);
    ranks_.send(index, SIGCONT);  // and one that somebody stopped reads none either
  }
  deadline_ = Clock::now() + kTimeToQuote;
}

/// When the time of the present stage is over: SIGTERM, then SIGKILL.
void Attempt::go_on_ending() {
  if (!deadline_ || Clock::now() < *deadline_) return;
  if (ending_ && !term_sent_) {
    term_sent_ = true;
    ranks_.send_all(SIGTERM);
    deadline_ = Clock::now() + kTimeToTerm;
    return;
  }
  if (!ending_) kill_now_ = true;  // asked to stop, and did not
  ranks_.send_all(SIGKILL);
  deadline_.reset();
}

/// Whoever reads our output may be slow: it is waited for, until somebody asks us to stop.
void Attempt::show_the_rest() {
  output_->finish();
  while (output_->has_more()) {
    const auto signal = inbox_.next(kLongestNap, output_->wanted());
    if (signal && *signal != SIGCHLD && *signal != SIGUSR1 && *signal != SIGUSR2) {
      stop_signal_ = asked_by_ = *signal;
      return;
    }
    output_->serve();
  }
}

}  // namespace lockstep::launch
