#include "lockstep/net/watchdog.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "lockstep/base/str.h"
#include "lockstep/net/region.h"
#include "lockstep/net/remote_ranks.h"

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

namespace {

std::string last_seen_as(const Region& region, RemoteRanks* remote, int world_rank,
                         const std::string& who) {
  if (remote != nullptr && !remote->is_here(world_rank)) return remote->last_seen(world_rank, who);
  const RankStatus status = region.status(world_rank);
  if (status.pid == 0) return base::str(who, " has not joined the job.");
  std::string text = base::str(who, " was last seen in ", status.phase);
  if (!status.detail.empty()) text += base::str(", ", status.detail);
  if (status.step >= 0) text += base::str(" of step ", status.step);
  const auto calls = region.recent_operations(world_rank);
  text += calls.empty() ? "; it has made no call yet." : "; its last call: " + calls.back() + ".";
  return text;
}

/// The rank of the job that this one waits for, which waits for another, and so on to one that does
/// not wait; -1 if they go round in a circle.
int last_waited_for(const Region& region, int world_rank) {
  for (int steps = 0; steps <= region.ranks(); ++steps) {
    const int next = region.impl().waits_for(world_rank);
    if (next < 0) return world_rank;
    world_rank = next;
  }
  return -1;
}

void add(std::vector<int>& list, int value) {
  if (std::find(list.begin(), list.end(), value) == list.end()) list.push_back(value);
}

}  // namespace

std::string last_seen(const Region& region, RemoteRanks* remote, const std::vector<int>& members,
                      int place) {
  std::string who = base::str("Rank ", place);
  if (members[place] != place) who += base::str(" (rank ", members[place], " of the job)");
  return last_seen_as(region, remote, members[place], who);
}

Blame blame_for(const Region& region, RemoteRanks* remote, const std::vector<int>& members,
                int rank, const std::vector<int>& missing) {
  Blame blame;
  std::vector<int> places;
  std::vector<int> outside;  // ranks of the job that are in no call of this group
  for (const int p : missing) {
    const int waited_for = last_waited_for(region, members[p]);
    if (waited_for < 0 || waited_for == members[p] || waited_for == members[rank]) {
      add(places, p);
      continue;
    }
    blame.stuck.push_back(p);
    const auto found = std::find(members.begin(), members.end(), waited_for);
    if (found == members.end()) {
      add(outside, waited_for);
    } else {
      add(places, static_cast<int>(found - members.begin()));
    }
  }
  if (!places.empty()) blame.text = ranks_text(places);
  for (const int p : places) blame.last_seen += "\n  " + last_seen(region, remote, members, p);
  for (const int r : outside) {
    const std::string who = base::str("rank ", r, " of the job");
    blame.text += (blame.text.empty() ? "" : " and ") + who;
    blame.last_seen += "\n  " + last_seen_as(region, remote, r, "R" + who.substr(1));
  }
  return blame;
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::vector<std::string> words;
  for (const int rank : ranks) words.push_back(std::to_string(rank));
  return (ranks.size() == 1 ? "rank " : "ranks ") + base::joined(words);
}

}  // namespace lockstep::net
