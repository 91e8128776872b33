/// metrics.jsonl of a run that goes on.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::detail {

/// Drops the lines of steps after `last_step`, which will be made again, and half a line that a
/// killed rank left: the file is replaced as a whole, or stays as it is. Nothing happens where
/// there is none. Returns the step of the last evaluation that is kept; 0: none is. Throws
/// StateError.
int64_t keep_earlier_lines(const std::string& path, int64_t last_step);

}  // namespace lockstep::detail
