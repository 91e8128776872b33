/// What ranks that may have seen different graphs agree upon after a backward.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::detail {

/// Thrown by every rank at once: the group is as good as before.
struct AgreedRefusal : UsageError {
  using UsageError::UsageError;
};

/// Throws on every rank, naming each rank's parameters that took no part in the loss. `unused` are
/// this rank's, `advice` says which setting lets them be.
[[noreturn]] void refuse_unused(ProcessGroup& group, std::vector<std::string> unused,
                                const std::string& advice);

}  // namespace lockstep::detail
