/// Norms of gradients whose pieces lie on many ranks: the same bits whoever owns what, and on every
/// rank, also on one that owns nothing.
///
/// Moves   plan/norm_plan.h; the largest element 16 bytes
#pragma once

#include <functional>

#include "lockstep/train/detail/square_sums.h"

namespace lockstep::detail {

class ShardNorm {
 public:
  /// `group` has the ranks of the layout; null: this rank owns all.
  ShardNorm(const plan::ParamTable& table, const plan::ShardLayout& layout, ProcessGroup* group);
  /// `group` has the ranks that together hold a replica, each a part of the model.
  ShardNorm(const ModelParts& parts, ProcessGroup& group);

  /// The gradient of a piece that this rank owns; null counts as zero.
  using Gradient = std::function<const float*(const plan::Piece&)>;

  /// The square root of the sum of all squares, in the order of plan/norm_chunks.h.
  double euclidean(const Gradient& gradient);
  /// The largest magnitude; NaN if there is one.
  double largest(const Gradient& gradient);

 private:
  ProcessGroup* group_;
  SquareSums sums_;
};

}  // namespace lockstep::detail
