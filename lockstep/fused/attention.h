/// Causal attention of one tensor grain's heads, straight on the rows of its column-parallel map.
///
/// Holds   its input, its result and log sum exp of each query: no scores, and in training with
///         dropout no mask (kernels/attention.h)
/// Source  Dao et al. 2022, arXiv:2205.14135;  docs/concepts/kernels.md
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/base/counter_random.h"
#include "lockstep/fused/product.h"

namespace lockstep::fused {

struct AttentionSettings {
  Arithmetic arithmetic;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  double scale = 1;
  at::Tensor cos;  // [S, K/2], turns queries and keys; undefined: none
  at::Tensor sin;
  double dropout = 0;
  std::vector<base::RandomKey> keys = {};  // one a sample, where there is dropout
  int64_t first_head = 0;                  // of the grain, in the layer
};

/// qkv   [B, S, (h + 2 j) K] or [T, B, S/T, (h + 2 j) K]: heads of queries, of keys, of values
/// gives the same shape with h K in the place of the last
at::Tensor attention(const at::Tensor& qkv, const AttentionSettings& settings);

}  // namespace lockstep::fused
