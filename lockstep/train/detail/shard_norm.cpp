#include "lockstep/train/detail/shard_norm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "lockstep/kernels/norm.h"

namespace lockstep::detail {

ShardNorm::ShardNorm(const plan::ParamTable& table, const plan::ShardLayout& layout,
                     ProcessGroup* group)
    : group_(group),
      rank_(group != nullptr ? group->rank() : 0),
      pieces_(layout.pieces(rank_)),
      places_(pieces_),
      plan_(plan::plan_norm(table, layout)),
      chunk_sums_(static_cast<size_t>(plan_.chunks.chunks)) {}

ShardNorm::ShardNorm(const ModelParts& parts, ProcessGroup& group)
    : group_(&group),
      rank_(group.rank()),
      pieces_(parts.counted),
      places_(parts.owned[static_cast<size_t>(rank_)]),
      plan_(plan::plan_norm(parts.whole, parts.owned)),
      chunk_sums_(static_cast<size_t>(plan_.chunks.chunks)) {}

double ShardNorm::euclidean(const Gradient& gradient) {
  if (plan_.place.empty()) return 0;  // no rank owns anything
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const plan::Piece& piece = pieces_[i];
    double* const sums = chunk_sums_.data() +
                         plan_.chunks.first_chunk[static_cast<size_t>(places_[i].param)] +
                         piece.lo / plan::kNormChunk;
    const float* const values = gradient(piece);
    if (values != nullptr) {
      kernels::chunk_square_sums(values, piece.size(), sums);
    } else {
      std::fill_n(sums, (piece.size() + plan::kNormChunk - 1) / plan::kNormChunk, 0.0);
    }
  }
  const std::vector<int64_t> counts = plan_.counts();
  const auto rank = static_cast<size_t>(rank_);
  at::Tensor mine = at::empty({counts[rank]}, at::kDouble);
  double* sum = mine.data_ptr<double>();
  for (const plan::LeafRange node : plan_.nodes[rank]) {
    *sum++ = plan::tree_sum(chunk_sums_.data() + node.lo, node.size());
  }
  at::Tensor all = mine;
  if (group_ != nullptr) {
    all = at::empty({std::accumulate(counts.begin(), counts.end(), int64_t{0})}, at::kDouble);
    group_->all_gather_uneven(mine, all, counts).wait();
  }
  std::vector<double> rising(plan_.place.size());
  for (size_t i = 0; i < plan_.place.size(); ++i) {
    rising[static_cast<size_t>(plan_.place[i])] = all.data_ptr<double>()[i];
  }
  for (const plan::AddStep step : plan_.additions) {
    rising[static_cast<size_t>(step.into)] += rising[static_cast<size_t>(step.from)];
  }
  return std::sqrt(rising[0]);
}

double ShardNorm::largest(const Gradient& gradient) {
  double top = 0;
  bool is_nan = false;
  for (const plan::Piece& piece : pieces_) {
    const float* const values = gradient(piece);
    for (int64_t i = 0; values != nullptr && i < piece.size(); ++i) {
      top = std::max(top, std::abs(static_cast<double>(values[i])));
      is_nan |= std::isnan(values[i]);
    }
  }
  at::Tensor both = at::tensor({top, is_nan ? 1.0 : 0.0}, at::kDouble);
  if (group_ != nullptr) group_->all_reduce(both, ReduceOp::max).wait();
  const double* const agreed = both.data_ptr<double>();
  return agreed[1] > 0 ? std::numeric_limits<double>::quiet_NaN() : agreed[0];
}

}  // namespace lockstep::detail
