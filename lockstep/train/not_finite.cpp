#include "lockstep/train/not_finite.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "lockstep/base/str.h"
#include "lockstep/kernels/span.h"

namespace lockstep {
namespace {

/// The name of the first trained parameter whose `values` are not all finite, on any rank; empty:
/// none. Each rank looks at the pieces that it owns.
std::string first_not_finite(ProcessGroup& group, const state::ParamStore& params,
                             const std::function<const float*(const plan::Piece&)>& values) {
  const auto count = static_cast<int>(params.table().params.size());
  int first = count;
  for (const plan::Piece& piece : params.pieces()) {
    if (piece.param < first && !kernels::all_finite(values(piece), piece.size())) {
      first = piece.param;
    }
  }
  for (const std::string& other : group.gather_text(std::to_string(first))) {
    first = std::min(first, std::stoi(other));
  }
  return first == count ? std::string() : params.table().params[static_cast<size_t>(first)].name;
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
                                const std::vector<double>& leaf_losses, state::ParamStore& params,
                                const state::GradStore& grads) {
  const std::string samples = samples_not_finite(group, batch, leaf_losses);
  const std::string weight = first_not_finite(
      group, params, [&](const plan::Piece& piece) { return params.master(piece); });
  const std::string gradient = first_not_finite(
      group, params, [&](const plan::Piece& piece) { return grads.gradient(piece); });
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
