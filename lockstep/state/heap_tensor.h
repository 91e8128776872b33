/// Tensors in the shared heap that are counted in the account of the rank that makes them.
#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/memory/account.h"

namespace lockstep::state {

/// Peers of `group` read and write it directly. Not filled; given back with the last view of it.
at::Tensor heap_tensor(ProcessGroup& group, int64_t numel, at::ScalarType type, memory::Kind kind);

}  // namespace lockstep::state
