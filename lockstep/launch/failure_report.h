/// What a failed job says: one block, the first cause first.
///
///   [rank 1 of 3] died: killed by signal 9 (Killed) at step 12, in backward, after 3.2 s.
///     Ranks 0 and 2 were ended by the launcher. Its log: runs/nano-7f3a/rank_0001.log
///       last lines of the log
#pragma once

#include <string>
#include <vector>

#include "lockstep/net/world.h"

namespace lockstep::launch {

// Of the table of exit codes.
inline constexpr int kRankDied = 4;
inline constexpr int kTimeoutOrMismatch = 5;
inline constexpr int kStoppedOnRequest = 75;

/// How a process ended, from waitpid's status.
struct Ending {
  int exit_code = 0;  // where signal is 0
  int signal = 0;

  static Ending from_wait_status(int status);
  bool operator==(const Ending&) const = default;
};

/// "killed by signal 9 (Killed)" or "exited with code 7".
std::string text_of(const Ending& ending);

/// ", at step 12, in backward (bucket 5)"; empty for a process that never joined the others.
std::string place_text(const net::RankStatus& status);

/// What the other ranks are told when `rank` has died.
std::string abort_text(int rank, const Ending& ending, const net::RankStatus& status);

struct Failure {
  int rank = -1;  // -1: all ranks, in one process
  int ranks = 1;
  Ending ending;
  net::RankStatus status;
  double seconds = 0;                        // since the job started
  std::string others = {};                   // how the other ranks ended, in sentences
  std::string log = {};                      // empty: none
  std::vector<std::string> last_lines = {};  // of what it wrote, where there is no log
  std::string operations = {};  // the file of every rank's last operations; empty: none
  std::string record = {};      // these operations themselves, where there is no file
  double stopped_seconds = 0;   // it was stopped (SIGSTOP), for longer than timeout_s
  double timeout_s = 0;
  std::string waits = {};  // what others waited in, a line each
};

/// The block of a rank that said nothing itself, of one that did, and of one that was stopped.
std::string death_block(const Failure& failure);
std::string error_block(const Failure& failure);
std::string stopped_block(const Failure& failure);

/// The exit code that the job takes from the failing rank: its own where the table of exit codes
/// knows it (1 to 8), else 4.
int exit_code_of(const Failure& failure);

/// The rank whose error came first. `abort_message` is what ended the others; their errors quote
/// it. -1: none of them reported an error.
int first_cause(const std::vector<net::RankStatus>& statuses, const std::string& abort_message);

}  // namespace lockstep::launch
