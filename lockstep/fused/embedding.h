/// Rows of a table by id, with the rows of their positions added in the same pass.
///
/// Holds   ids from forward to backward
/// Order   a row's gradient is summed over its tokens as they stand; a position's over the samples
/// Source  kernels/embedding.h;  docs/concepts/kernels.md
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::fused {

/// out[..., s, :] = table[ids[..., s]] + positions[s].
///
/// ids        [..., S] int64
/// table      [V, D] float32; positions [S or more, D] float32, or undefined. Their memory may be
///            released (torch_inside/first_touch.h)
/// throws     UsageError: an id that is no row, too few positions, another dtype
at::Tensor embedding(const at::Tensor& ids, const at::Tensor& table, const at::Tensor& positions);

}  // namespace lockstep::fused
