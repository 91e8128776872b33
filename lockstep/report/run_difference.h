/// Where two runs first compute something else, each in its own layout: the witnesses of both, step
/// by step.
///
/// The ranks of one run, joined to what one rank alone would have left, are the reference for every
/// rank of the other, and the other way round: ranks of one run that have drifted from each other
/// differ from one that has not. Of what is found both ways the one nearest to its cause counts, in
/// the order of report/equivalence.h.
///
/// Source  docs/concepts/bisect.md
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/files/witness_file.h"
#include "lockstep/report/equivalence.h"

namespace lockstep::report {

/// What differs. Values: `layout` is run A's, `alone` run B's.
struct RunDifference {
  Difference first;
  bool rank_is_of_b = false;          // a rank in it is one of run B's; else of A's
  std::optional<Difference> element;  // the first of one element, where `first` is not
};

struct RunComparison {
  std::optional<RunDifference> difference;
  std::vector<std::string> missing;  // what one run has left and the other has not
  int64_t equal_steps = 0;           // in all they have left, before the first that is not
};

/// What the ranks of a layout have left of one step as one rank alone leaves it: logical tensors,
/// digests added up, layers in the order in which they compute. Of an element that several hold
/// there is the first one's.
files::StepWitness joined(const std::vector<const files::StepWitness*>& ranks);

/// Steps first to last, from 1, up to the first that differs. `moments`: of the optimizer.
RunComparison compare_runs(const std::vector<files::StepWitness>& a,
                           const std::vector<files::StepWitness>& b, int64_t first, int64_t last,
                           int moments);

}  // namespace lockstep::report
