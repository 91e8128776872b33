#include "lockstep/net/watchdog.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "lockstep/base/str.h"
#include "lockstep/net/region.h"

namespace lockstep::net {

int64_t start_time_of(int pid) {
  std::ifstream file(base::str("/proc/", pid, "/stat"));
  std::string line;
  if (!std::getline(file, line)) return 0;
  // The program's name may hold spaces and brackets: fields are counted from its end. The first
  // is the state, the twentieth the start time.
  std::istringstream fields(line.substr(line.rfind(')') + 1));
  std::string field;
  fields >> field;
  if (field == "Z" || field == "X") return 0;
  for (int i = 0; i < 19; ++i) fields >> field;
  return std::strtoll(field.c_str(), nullptr, 10);
}

bool process_is_gone(const Region& region, int world_rank) {
  const RankControl& control = region.impl().control(world_rank);
  const int pid = control.pid.load(std::memory_order_acquire);
  return pid != 0 && start_time_of(pid) != control.pid_started.load(std::memory_order_relaxed);
}

std::string last_seen(const Region& region, int world_rank, const std::string& who) {
  const RankStatus status = region.status(world_rank);
  if (status.pid == 0) return base::str(who, " has not joined the job.");
  std::string text = base::str(who, " was last seen in ", status.phase);
  if (!status.detail.empty()) text += base::str(", ", status.detail);
  if (status.step >= 0) text += base::str(" of step ", status.step);
  const auto calls = region.recent_operations(world_rank);
  text += calls.empty() ? "; it has made no call yet." : "; its last call: " + calls.back() + ".";
  return text;
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::vector<std::string> words;
  for (const int rank : ranks) words.push_back(std::to_string(rank));
  return (ranks.size() == 1 ? "rank " : "ranks ") + base::joined(words);
}

}  // namespace lockstep::net
