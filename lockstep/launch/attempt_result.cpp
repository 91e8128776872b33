// What came of an attempt: its exit code, and the block that says what happened first.

#include <algorithm>
#include <cmath>
#include <csignal>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/launch/attempt.h"
#include "lockstep/launch/flight_record.h"
#include "lockstep/net/watchdog.h"

namespace lockstep::launch {
namespace {

constexpr size_t kOperationsInReport = 4;  // of each rank, where there is no folder for all

std::string name_of(int signal) {
  switch (signal) {
    case SIGINT:
      return "Ctrl-C (SIGINT)";
    case SIGHUP:
      return "SIGHUP";
    case SIGQUIT:
      return "SIGQUIT";
    default:
      return "SIGTERM";
  }
}

std::string capitalized(std::string text) {
  if (!text.empty()) text.front() = static_cast<char>(std::toupper(text.front()));
  return text;
}

bool has_operations(const net::Region& region) {
  for (int rank = 0; rank < region.ranks(); ++rank) {
    if (!region.recent_operations(rank).empty()) return true;
  }
  return false;
}

}  // namespace

JobResult Attempt::result() const {
  if (failed_) return failure();
  if (!elsewhere_.empty()) return {kRankDied, elsewhere_, /*first_hand=*/false};
  bool saved = false;
  for (int index = 0; index < ranks_.count(); ++index) {
    const Ending& ending = *ranks_.ending(index);
    const bool of_request = stop_signal_ != 0 && ending.exit_code == 128 + stop_signal_;
    const bool saved_or_done = ending.exit_code == 0 || ending.exit_code == kStoppedOnRequest;
    if (ending.signal != 0 || of_request || (kill_now_ && !saved_or_done)) {
      // A second request may come when all is saved: then nothing is lost.
      return aborted(kill_now_ ? "was stopped at once; what it had not saved is lost"
                               : "stopped the ranks before they could save");
    }
    saved = saved || ending.exit_code == kStoppedOnRequest;
  }
  const std::string unwritten = output_ ? output_->error() : "";
  if (!unwritten.empty() && !saved) {
    return {EnvironmentError("").exit_code(), "lockstep: cannot write " + unwritten + "."};
  }
  return {saved ? kStoppedOnRequest : 0, ""};
}

JobResult Attempt::aborted(const std::string& how) const {
  return {128 + asked_by_, base::str(name_of(asked_by_), ": the job ", how, ".")};
}

JobResult Attempt::failure() const {
  Failure failure;
  failure.ranks = world_size();
  failure.seconds = std::chrono::duration<double>(failed_->when - started_).count();
  failure.stopped_seconds = std::chrono::duration<double>(failed_->stopped).count();
  failure.timeout_s = options_.timeout_s;
  failure.waits = failed_->waits;
  const int rank = cause();
  const int index = one_process() ? 0 : rank;
  failure.status = status_of(rank);
  // A crash is the whole process's, an error that was reported is of the rank that did.
  failure.rank = one_process() && failure.status.error.empty() ? -1 : rank_of(rank);
  failure.ending = *ranks_.ending(index);
  failure.others = others_text(index);
  const bool was_stopped = failure.stopped_seconds > 0;
  const int code = was_stopped ? kTimeoutOrMismatch : exit_code_of(failure);
  // Other failures are one rank's own: what its peers did explains nothing.
  const bool of_peers = code == kRankDied || code == kTimeoutOrMismatch;
  if (!log_folder_.empty()) {
    failure.log = log_path(log_folder_, rank_of(index));
    const std::string operations = write_flight_record(*region_, log_folder_);
    if (of_peers) failure.operations = operations;
  } else {
    if (output_) failure.last_lines = output_->last_lines(index);
    if (of_peers && has_operations(*region_)) {
      failure.record = flight_record(*region_, kOperationsInReport);
    }
  }
  if (was_stopped) return {code, stopped_block(failure)};
  if (failure.status.error.empty()) return {code, death_block(failure)};
  return {code, error_block(failure), /*first_hand=*/!of_peers};
}

/// How the other ranks ended: by themselves before, or of this one's failure.
std::string Attempt::others_text(int cause) const {
  std::vector<int> ended;
  std::vector<int> before;
  for (int index = 0; index < ranks_.count(); ++index) {
    if (index == cause) continue;
    const bool by_itself = !failed_->running[static_cast<size_t>(index)] &&
                           ranks_.ended_unasked(index) && !is_failure(index);
    (by_itself ? before : ended).push_back(rank_of(index));
  }
  std::string text;
  if (!ended.empty()) {
    text = capitalized(net::ranks_text(ended)) + (ended.size() == 1 ? " was" : " were") +
           " ended by the launcher. ";
  }
  if (!before.empty()) {
    text += capitalized(net::ranks_text(before)) + " had ended before. ";
  }
  return text;
}

/// The rank whose failure the others followed, among those of this host.
int Attempt::cause() const {
  if (failed_->stopped > Clock::duration(0)) return failed_->index;
  std::vector<net::RankStatus> statuses;
  for (int rank = 0; rank < options_.ranks; ++rank) statuses.push_back(status_of(rank));
  const int speaker = first_cause(statuses, failed_->rank_message);
  // Peers may notice a death before we do and report it in their words; the dead rank is the
  // cause all the same. An error of any other kind comes before the crashes that follow it.
  const bool may_be_of_a_death =
      speaker < 0 || statuses[static_cast<size_t>(speaker)].exit_code == kRankDied ||
      statuses[static_cast<size_t>(speaker)].exit_code == kTimeoutOrMismatch;
  if (may_be_of_a_death && !one_process()) {
    for (const int index : ranks_.order()) {
      const bool silent = statuses[static_cast<size_t>(index)].error.empty();
      if (silent && ranks_.ended_unasked(index) && is_failure(index)) return index;
    }
  }
  return speaker >= 0 ? speaker : failed_->index;
}

}  // namespace lockstep::launch
