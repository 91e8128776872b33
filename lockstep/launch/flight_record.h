/// What every rank of a job did last: the page that a person reads when ranks wait for each other.
///
///   rank 0 at step 12, in backward (bucket 5):
///     all_reduce of 1024 float32 (sum) on "dp" #317
///     waits in all_reduce of 512 float32 (sum) on "dp" #318, for 12.3 s, for rank 1
#pragma once

#include <cstddef>
#include <string>

#include "lockstep/net/world.h"

namespace lockstep::launch {

/// The last calls of every rank that has joined the region, and the calls they wait in. Empty if
/// none has joined. `most_operations`: of each rank.
std::string flight_record(const net::Region& region, size_t most_operations = 20);

/// Writes the record to `folder`/last_operations.txt. Returns the file; empty if it cannot be
/// written: whatever led here matters more.
std::string write_flight_record(const net::Region& region, const std::string& folder);

/// "ranks 0 and 2 wait in all_reduce ... #318": one line for each call that ranks wait in.
std::string waits_text(const net::Region& region);

}  // namespace lockstep::launch
