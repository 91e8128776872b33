/// Why a step's loss or gradient is no number: which tensor is the first that is not finite, and
/// whose samples gave a loss that is not.
#pragma once

#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/plan/batch_plan.h"
#include "lockstep/state/grad_store.h"
#include "lockstep/state/param_store.h"

namespace lockstep {

/// The first of: a weight (what the step was computed from), the loss of a leaf's samples, a
/// reduced gradient; in one or two sentences. All ranks of `group` call it and get the same text.
///
/// leaf_losses   of this rank; what other ranks computed is finite here
std::string describe_not_finite(ProcessGroup& group, const plan::BatchPlan& batch,
                                const std::vector<double>& leaf_losses, state::ParamStore& params,
                                const state::GradStore& grads);

}  // namespace lockstep
