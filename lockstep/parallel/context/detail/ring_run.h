/// What travels round the ring: keys and values of a rank's run of grains, or their gradients.
///
///   [grains, 2 halves, 2 (keys, values), n, h, K]    a block's matrices [n, h, K] are contiguous,
///                                                    whoever has the run
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "lockstep/parallel/context/ring_attention.h"
#include "lockstep/parallel/tensor/grain_sum.h"
#include "lockstep/plan/ring_steps.h"

namespace lockstep::parallel::detail {

/// Of k and v [c, n, s, K].
at::Tensor packed(const at::Tensor& k, const at::Tensor& v);

/// Keys (0) or values (1) as they came.
at::Tensor unpacked(const at::Tensor& run, int64_t which);

/// A half-grain's matrices: a view.
struct RunHalf {
  at::Tensor keys, values;
};
inline RunHalf half_of(const at::Tensor& run, int64_t grain, int64_t half) {
  const at::Tensor both = run[grain][half];
  return {both[0], both[1]};
}

/// Sends a run that came from `visitor` to the next rank; what comes is of the rank before it.
Pending pass_on(const ContextGroup& group, const at::Tensor& run, int visitor);

/// Calls `at_step(step, run)` for each step of the ring with the run of keys and values that is
/// here. The next one is on its way meanwhile.
template <class AtStep>
void go_round(const ContextGroup& group, const at::Tensor& own, const AtStep& at_step) {
  const std::vector<plan::RingStep> steps = plan::ring_steps(group.place);
  at::Tensor here = own;
  for (size_t s = 0; s < steps.size(); ++s) {
    std::optional<Pending> next;
    if (s + 2 < steps.size()) next = pass_on(group, here, steps[s].visitor);
    at_step(steps[s], here);
    here = next ? next->wait() : own;
  }
}

}  // namespace lockstep::parallel::detail
