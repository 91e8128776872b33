#include "lockstep/train/not_finite.h"

#include <cmath>
#include <functional>

#include "lockstep/base/str.h"
#include "lockstep/kernels/span.h"

namespace lockstep {
namespace {

/// The name of the first trained parameter whose `values` are not all finite; empty: none.
std::string first_not_finite(const plan::ParamTable& table,
                             const std::function<const float*(int)>& values) {
  for (size_t p = 0; p < table.params.size(); ++p) {
    if (!table.params[p].trainable) continue;
    if (!kernels::all_finite(values(static_cast<int>(p)), table.params[p].numel)) {
      return table.params[p].name;
    }
  }
  return {};
}

/// "rank 1's samples 8 to 15 of the step" for each rank with a loss that is not finite.
std::string samples_not_finite(ProcessGroup& group, const plan::BatchPlan& batch,
                               const std::vector<double>& leaf_losses) {
  const int64_t leaf_samples = batch.micro_batch * batch.micro_batches_per_grain;
  std::vector<std::string> mine;
  for (size_t leaf = 0; leaf < leaf_losses.size(); ++leaf) {
    if (std::isfinite(leaf_losses[leaf])) continue;
    const int64_t first = static_cast<int64_t>(leaf) * leaf_samples;
    mine.push_back(base::str(first, " to ", first + leaf_samples - 1));
  }
  std::vector<std::string> found;
  const std::vector<std::string> all = group.gather_text(base::joined(mine));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank].empty()) found.push_back(base::str("rank ", rank, "'s samples ", all[rank]));
  }
  return base::joined(found);
}

}  // namespace

std::string describe_not_finite(ProcessGroup& group, const plan::BatchPlan& batch,
                                const std::vector<double>& leaf_losses,
                                const state::ParamStore& params, const state::GradStore& grads) {
  const plan::ParamTable& table = params.table();
  const std::string samples = samples_not_finite(group, batch, leaf_losses);
  const std::string weight =
      first_not_finite(table, [&](int param) { return params.master(param); });
  const std::string gradient =
      first_not_finite(table, [&](int param) { return grads.gradient(param); });
  if (!weight.empty()) {
    const std::string whose = samples.empty() ? "" : base::str(" (seen by ", samples, ")");
    return base::str("the weight \"", weight, "\" is not finite, since an earlier update", whose);
  }
  const std::string first =
      gradient.empty() ? "" : base::str("; the first gradient that is not: \"", gradient, "\"");
  if (!samples.empty()) {
    return base::str("the loss of ", samples, " of the step is not finite, every weight is", first);
  }
  if (!gradient.empty()) {
    return base::str("the gradient of \"", gradient, "\" is not finite, weights and losses are");
  }
  return "every weight, loss and gradient is finite, their sum or norm is not finite";
}

}  // namespace lockstep
