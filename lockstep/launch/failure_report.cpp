#include "lockstep/launch/failure_report.h"

#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include "lockstep/base/str.h"

namespace lockstep::launch {
namespace {

constexpr int64_t kLogTailBytes = 4096;
constexpr size_t kLogTailLines = 8;

std::string name_of(int signal) {
  const char* name = sigdescr_np(signal);
  return name != nullptr ? name : "unknown";
}

std::string seconds_text(double seconds) {
  // Tenths without printf, which would follow the locale.
  const auto tenths = static_cast<int64_t>(std::llround(seconds * 10));
  return base::str(tenths / 10, ".", tenths % 10, " s");
}

/// The last lines of a file; none where there is no file.
std::vector<std::string> last_lines_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return {};
  const auto size = static_cast<int64_t>(file.tellg());
  const int64_t from = std::max<int64_t>(0, size - kLogTailBytes);
  file.seekg(from);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  if (from > 0 && !lines.empty()) lines.erase(lines.begin());  // most likely cut
  if (lines.size() > kLogTailLines) lines.erase(lines.begin(), lines.end() - kLogTailLines);
  return lines;
}

std::string who(const Failure& failure) {
  if (failure.rank >= 0) return base::str("[rank ", failure.rank, " of ", failure.ranks, "]");
  if (failure.ranks == 1) return "[rank 0 of 1]";
  return base::str("[the process of ranks 0 to ", failure.ranks - 1, "]");
}

/// Adds `text` as a line of the block, unless there is nothing to say.
void add_line(std::string& block, std::string text) {
  while (text.ends_with(' ')) text.pop_back();
  if (!text.empty()) block += "\n  " + text;
}

/// Adds every line of `text`, further in.
void quote(std::string& block, const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) block += "\n    " + line;
}

/// How the others ended and what this one wrote last.
void add_surroundings(std::string& block, const Failure& failure) {
  add_line(block, failure.others + (failure.log.empty() ? "" : "Its log: " + failure.log));
  std::vector<std::string> lines = failure.last_lines;
  if (!failure.log.empty()) {
    lines = last_lines_of(failure.log);
  } else if (!lines.empty()) {
    add_line(block, "Its last lines:");
  }
  for (const std::string& line : lines) block += "\n    " + line;
}

void add_operations(std::string& block, const Failure& failure) {
  if (!failure.operations.empty()) {
    add_line(block, "The last operations of every rank: " + failure.operations);
  } else if (!failure.record.empty()) {
    add_line(block, "The last operations of every rank:");
    quote(block, failure.record);
  }
}

}  // namespace

Ending Ending::from_wait_status(int status) {
  if (WIFSIGNALED(status)) return {.exit_code = 0, .signal = WTERMSIG(status)};
  return {.exit_code = WEXITSTATUS(status), .signal = 0};
}

std::string text_of(const Ending& ending) {
  return ending.signal != 0
             ? base::str("killed by signal ", ending.signal, " (", name_of(ending.signal), ")")
             : base::str("exited with code ", ending.exit_code);
}

std::string place_text(const net::RankStatus& status) {
  if (status.pid == 0) return "";
  // A loop of the user's own (lockstep::init) tells of no steps.
  if (status.step < 0 && status.phase == "running") return ", in " + status.detail;
  std::string text =
      status.step < 0 ? std::string(" before the first step") : base::str(" at step ", status.step);
  if (!status.phase.empty()) text += ", in " + status.phase;
  if (!status.detail.empty()) text += " (" + status.detail + ")";
  return text;
}

std::string abort_text(int rank, const Ending& ending, const net::RankStatus& status) {
  return base::str("rank ", rank, " died: ", text_of(ending), place_text(status));
}

std::string death_block(const Failure& failure) {
  std::string block =
      base::str(who(failure), failure.ending.signal != 0 ? " died: " : " ", text_of(failure.ending),
                place_text(failure.status), ", after ", seconds_text(failure.seconds), ".");
  if (failure.ending.exit_code == 0 && failure.ending.signal == 0) {
    add_line(block, "It left while the others still needed it.");
  }
  if (failure.ending.signal == SIGKILL) {
    add_line(block, "If nobody sent it, the system ran out of memory: `dmesg` tells.");
  }
  add_surroundings(block, failure);
  add_operations(block, failure);
  return block;
}

std::string error_block(const Failure& failure) {
  std::string block = failure.status.error;
  while (block.ends_with('\n')) block.pop_back();
  if (!block.starts_with("[")) block = who(failure) + " " + block;
  if (!failure.log.empty()) add_line(block, "Its log: " + failure.log);
  add_operations(block, failure);
  return block;
}

std::string stopped_block(const Failure& failure) {
  std::string block = base::str(who(failure), " was stopped (SIGSTOP) for ",
                                seconds_text(failure.stopped_seconds), place_text(failure.status),
                                "; the timeout is ", seconds_text(failure.timeout_s), ".");
  std::istringstream waits(failure.waits);
  for (std::string line; std::getline(waits, line);) add_line(block, line);
  add_surroundings(block, failure);
  add_operations(block, failure);
  return block;
}

int exit_code_of(const Failure& failure) {
  constexpr int kLastOfTable = 8;
  if (failure.ending.signal != 0 && failure.status.error.empty()) return kRankDied;
  const int code = failure.status.error.empty() || failure.status.exit_code == 0
                       ? failure.ending.exit_code
                       : failure.status.exit_code;
  return code >= 1 && code <= kLastOfTable ? code : kRankDied;
}

int first_cause(const std::vector<net::RankStatus>& statuses, const std::string& abort_message) {
  // The cause's error is (part of) the message; an echo quotes the whole message, and is longer.
  int cause = -1;
  for (int rank = 0; rank < static_cast<int>(statuses.size()); ++rank) {
    const std::string& error = statuses[rank].error;
    if (error.empty() || abort_message.find(error) == std::string::npos) continue;
    if (cause < 0 || error.size() > statuses[cause].error.size()) cause = rank;
  }
  if (cause >= 0) return cause;
  for (int rank = 0; rank < static_cast<int>(statuses.size()); ++rank) {
    const std::string& error = statuses[rank].error;
    if (error.empty()) continue;
    if (abort_message.empty() || error.find(abort_message) == std::string::npos) return rank;
  }
  return -1;
}

}  // namespace lockstep::launch
