#include "lockstep/train/not_finite.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/str.h"
#include "lockstep/kernels/span.h"

namespace lockstep {
namespace {

/// The first parameter, on any rank, of those that each rank names by index; empty: none.
std::string first_of_all(ProcessGroup& group, const plan::ParamTable& table, int mine) {
  int first = mine;
  for (const std::string& other : group.gather_text(std::to_string(mine))) {
    first = std::min(first, std::stoi(other));
  }
  const auto index = static_cast<size_t>(first);
  return index < table.params.size() ? table.params[index].name : std::string();
}

/// "rank 1's samples 8 to 15 of the step" for each rank with a loss that is not finite.
std::string samples_not_finite(ProcessGroup& group, const plan::BatchPlan& batch,
                               const std::vector<double>& leaf_losses) {
  const int64_t leaf_samples = batch.micro_batch * batch.micro_batches_per_grain;
  std::vector<std::string> mine;
  for (size_t leaf = 0; leaf < leaf_losses.size(); ++leaf) {
    if (std::isfinite(leaf_losses[leaf])) continue;
    const int64_t first = static_cast<int64_t>(leaf) % batch.grains * leaf_samples;
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
  const plan::ParamTable& table = params.table();
  const int none = static_cast<int>(table.params.size());
  int first_weight = none;
  params.for_each_piece(params.pieces(), [&](const plan::Piece& piece, const float* values) {
    if (kernels::all_finite(values, piece.size())) return;
    first_weight = std::min(first_weight, piece.param);
  });
  int first_gradient = none;
  for (const plan::Piece& piece : params.pieces()) {
    if (kernels::all_finite(grads.gradient(piece), piece.size())) continue;
    first_gradient = std::min(first_gradient, piece.param);
  }
  const std::string weight = first_of_all(group, table, first_weight);
  const std::string gradient = first_of_all(group, table, first_gradient);
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
