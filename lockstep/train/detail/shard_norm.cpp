#include "lockstep/train/detail/shard_norm.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/kernels/norm.h"

namespace lockstep::detail {

ShardNorm::ShardNorm(const plan::ParamTable& table, const plan::ShardLayout& layout,
                     ProcessGroup* group)
    : group_(group), sums_(table, layout, group, plan::NormSums::whole, /*kinds=*/1) {}

ShardNorm::ShardNorm(const ModelParts& parts, ProcessGroup& group)
    : group_(&group), sums_(parts, group, plan::NormSums::whole, /*kinds=*/1) {}

double ShardNorm::euclidean(const Gradient& gradient) {
  for (size_t i = 0; i < sums_.pieces().size(); ++i) {
    const plan::Piece& piece = sums_.pieces()[i];
    double* const sums = sums_.chunks_of(i, 0);
    const float* const values = gradient(piece);
    if (values != nullptr) {
      kernels::chunk_square_sums(values, piece.size(), sums);
    } else {
      std::fill_n(sums, (piece.size() + plan::kNormChunk - 1) / plan::kNormChunk, 0.0);
    }
  }
  const std::vector<double> whole = sums_.exchange().front();
  return whole.empty() ? 0 : std::sqrt(whole.front());
}

double ShardNorm::largest(const Gradient& gradient) {
  double top = 0;
  bool is_nan = false;
  for (const plan::Piece& piece : sums_.pieces()) {
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
