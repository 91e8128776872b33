/// One start of a job's ranks, from fork to the last of them gone. A job without restarts is one
/// attempt.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/failure_report.h"
#include "lockstep/launch/job.h"
#include "lockstep/launch/rank_environment.h"
#include "lockstep/launch/rank_output.h"
#include "lockstep/launch/rank_process.h"
#include "lockstep/launch/ranks.h"
#include "lockstep/launch/signal_inbox.h"
#include "lockstep/net/world.h"

namespace lockstep::launch {

class Attempt {
 public:
  /// `restart`: how many starts have failed before. `log_folder` is there, or empty.
  Attempt(const JobOptions& options, int restart, std::string log_folder, SignalInbox& inbox);

  /// A step of it is: take what signals say, move what ranks write, collect ranks that ended, go on
  /// with whatever ends the rest. Throws UsageError, EnvironmentError: a rank could not be started.
  JobResult run();

  /// Somebody wants the job to end: it is not started again.
  bool was_asked_to_stop() const { return stop_signal_ != 0; }

 private:
  using Clock = std::chrono::steady_clock;

  // start (attempt.cpp)
  void start();
  RankPlace place_of_all() const;
  void start_rank(int index, RankPlace place, const std::string& program, int core);
  bool is_shown(int index) const;
  bool one_process() const { return options_.engine == "threads"; }

  // the loop (attempt.cpp)
  std::chrono::milliseconds nap() const;
  void take(int signal);
  void pass_on(int signal);
  void hear_nodes();
  void collect();
  void look_for_stopped();
  void begin_to_end(int index, Clock::duration stopped);
  void end_others(const std::string& why);
  void go_on_ending();
  void show_the_rest();
  bool is_failure(int index) const;
  bool has_erred(int index) const;
  int rank_of(int index) const { return options_.share.first_rank + index; }
  int world_size() const {
    return options_.share.world_size > 0 ? options_.share.world_size : options_.ranks;
  }
  net::RankStatus status_of(int index) const { return region_->status(rank_of(index)); }

  // what came of it (attempt_result.cpp)
  JobResult result() const;
  JobResult aborted(const std::string& how) const;
  JobResult failure() const;
  int cause() const;
  std::string others_text(int cause) const;

  struct Failed {
    int index = 0;  // the process that was seen to end, or to be stopped, first
    Clock::time_point when;
    std::string rank_message;    // of the rank that had ended the job by itself; empty: none had
    Clock::duration stopped{0};  // it was, for so long; 0: it ended
    std::string waits;           // what the others waited in
    std::vector<bool> running;   // which of the others were there still
  };

  const JobOptions& options_;
  const int restart_;
  const std::string log_folder_;
  SignalInbox& inbox_;
  const Clock::time_point started_ = Clock::now();
  std::shared_ptr<net::Region> region_;
  std::unique_ptr<RankOutput> output_;  // null: ranks write themselves
  Ranks ranks_;                         // by rank of this host; threads: one process
  std::optional<Failed> failed_;
  std::optional<Clock::time_point> deadline_;  // when the next harsher step is taken
  Clock::time_point next_look_{};              // for stopped ranks
  bool ending_ = false;                        // the others have been told to leave
  bool term_sent_ = false;
  bool kill_now_ = false;
  int stop_signal_ = 0;    // passed on to the ranks; 0: nobody asked
  int asked_by_ = 0;       // the signal that came
  std::string elsewhere_;  // what ended the job on another node; empty: nothing has
};

/// DIR/rank_0002.log
std::string log_path(const std::string& folder, int rank);

}  // namespace lockstep::launch
