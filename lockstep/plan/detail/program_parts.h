/// What the programs of a step have in common, with a pipeline or without.
#pragma once

#include <vector>

#include "lockstep/plan/step_program.h"

namespace lockstep::plan {

int num_buckets(const StepInputs& inputs);

/// The uses of the bucket's tied parameters are added.
void fold_uses(const StepInputs& inputs, int bucket, int leaf, std::vector<Step>& steps);

/// The nodes that each bucket of locally folded leaves is reduced by; one empty one: all leaves.
std::vector<LeafRange> folded_nodes(const StepInputs& inputs, int rank);

/// From the sums over replicas to the publishing of parameters.
void end_of_step(const StepInputs& inputs, std::vector<Step>& steps);

}  // namespace lockstep::plan
