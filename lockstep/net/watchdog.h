/// Who is missing, where it was last seen, and whether it still lives.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/net/world.h"

namespace lockstep::net {

class RemoteRanks;

/// When the process started, in the kernel's ticks since boot; 0 if there is none or it is a
/// zombie.
int64_t start_time_of(int pid);

/// Whether the rank's process is still the one that joined.
bool process_is_gone(const Region& region, int world_rank);

/// "Rank 2 was last seen in backward, bucket 5 of step 12; its last call: all_reduce of ..."; where
/// the group counts its members otherwise than the job, "Rank 0 (rank 2 of the job) was ...".
/// `remote`: of the job's other hosts; null: there are none.
std::string last_seen(const Region& region, RemoteRanks* remote, const std::vector<int>& members,
                      int place);

/// Who keeps a group waiting: of the ranks that are missing, those that do not wait for another in
/// a call of theirs; and whom the others wait for in the end.
struct Blame {
  std::string text;        // "ranks 1 and 3"
  std::vector<int> stuck;  // missing, and waiting for them
  std::string last_seen;   // a line for each, indented
};
Blame blame_for(const Region& region, RemoteRanks* remote, const std::vector<int>& members,
                int rank, const std::vector<int>& missing);

/// "rank 2" or "ranks 1 and 3", by place in the group.
std::string ranks_text(const std::vector<int>& ranks);

}  // namespace lockstep::net
