/// Causal attention of one grain's heads, in blocks of 64 queries.
///
///   for a block of queries from r on:   keys 0 to r + 63 alone: those behind take no part
///     s = scale q k^T,  e = exp(s - max),  o = ((e * mask) v) / sum of e       forward
///     p again from s and log sum exp;  dv += (p mask)^T do;
///     ds = p (do v^T mask - sum of do o) scale;  dq = ds k;  dk += ds^T q        backward
///
/// Rows are those of a column-parallel layer, [T, B, S/T, (h + 2 j) K]: of each token the h heads
/// of queries, then j of keys, then j of values, each K wide; query head i meets key head i /
/// (h/j). Queries and keys may be turned by rotary positions on the way in.
///
/// Holds   log sum exp of each query; in scratch 64 rows of scores, never S x S
/// Order   of products: oneDNN's for the block's shape; of sums along a row 16 lanes and their
/// tree;
///         dk and dv by query head, then by block. Blocks are a part of the kernel set's name
/// Source  Dao et al. 2022, "FlashAttention", NeurIPS, arXiv:2205.14135 (rows recomputed, not
///         kept); Ainslie et al. 2023, arXiv:2305.13245; Su et al. 2021, arXiv:2104.09864
#pragma once

#include <cstdint>

#include "lockstep/base/counter_random.h"
#include "lockstep/kernels/gemm.h"
#include "lockstep/plan/kernel_blocks.h"

namespace lockstep::kernels {

using plan::kQueryBlock;

struct AttentionShape {
  int64_t slices = 1;  // T
  int64_t samples = 0;
  int64_t sequence = 0;  // S
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t width = 0;  // K

  int64_t row_in() const { return (heads + 2 * kv_heads) * width; }
  int64_t row_out() const { return heads * width; }
  int64_t rows() const { return samples * sequence; }
};

struct AttentionOptions {
  OperandType type = OperandType::fp32;
  float scale = 1;
  const float* cos = nullptr;  // [S, K/2]; null: no rotary positions
  const float* sin = nullptr;
  /// The share of probabilities dropped. The factor of head `i`, query q, key k of a sample is
  /// drawn from its key at ((first_head + i) S + q) S + k.
  double dropout = 0;
  const base::RandomKey* keys = nullptr;  // one a sample
  int64_t first_head = 0;
};

/// Floats of scratch that both passes want.
int64_t attention_scratch(const AttentionShape& shape);

/// out [T, B, S/T, h K]; log_sums [B, h, S].
void attention(const AttentionShape& shape, const AttentionOptions& options, const float* in,
               float* out, float* log_sums, float* scratch);

/// `d_in` like `in`, written whole.
void attention_backward(const AttentionShape& shape, const AttentionOptions& options,
                        const float* in, const float* out, const float* log_sums,
                        const float* d_out, float* d_in, float* scratch);

/// Operations of the products of a forward; a backward has five halves of it.
int64_t attention_flops(const AttentionShape& shape);

}  // namespace lockstep::kernels
