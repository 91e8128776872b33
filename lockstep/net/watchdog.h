/// Who is missing, where it was last seen, and whether it still lives.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/net/world.h"

namespace lockstep::net {

/// When the process started, in the kernel's ticks since boot; 0 if there is none or it is a
/// zombie.
int64_t start_time_of(int pid);

/// Whether the rank's process is still the one that joined.
bool process_is_gone(const Region& region, int world_rank);

/// "Rank 2 was last seen in backward, bucket 5 of step 12; its last call: all_reduce of ..."
std::string last_seen(const Region& region, int world_rank, const std::string& who);

/// "rank 2" or "ranks 1 and 3", by place in the group.
std::string ranks_text(const std::vector<int>& ranks);

}  // namespace lockstep::net
