/// Cross-entropy of a head's logits, which exist for a block of rows at a time.
///
///   for 512 rows:    l = x w^T, in tiles of 1024 columns; most = max l, sum = sum of exp(l - most)
///                    loss = most + log sum - l[target]
///                    e = exp(l - most) / sum - [target]
///                    dx = e w,  dw += e^T x      tile by tile, while the tile is in the cache
///
/// dx and dw are those of the sum of the losses, each times its weight if there are any. A row
/// whose target is below 0 does not count: its loss and gradients are 0. A vocabulary that is
/// divided takes the steps of a block apart: maxima and sums of all parts meet between them.
///
/// Holds   in scratch 512 rows of logits
/// Order   of products: oneDNN's for a block's and a tile's shape; dx by tile, dw by block; of sums
///         along a row 16 lanes a tile, then the tiles in order. Sizes are a part of the kernel
///         set's name
/// Source  docs/concepts/kernels.md
#pragma once

#include <cstdint>

#include "lockstep/kernels/gemm.h"
#include "lockstep/plan/kernel_blocks.h"

namespace lockstep::kernels {

using plan::kLossColumns;
using plan::kLossRows;

struct TokenLossShape {
  OperandType type = OperandType::fp32;
  int64_t rows = 0;
  int64_t width = 0;
  int64_t vocab = 0;
};

/// Floats of scratch.
int64_t token_loss_scratch(const TokenLossShape& shape);

/// losses [rows]. x [rows, width] and w [vocab, width] as products take them. `dx` [rows, width]
/// and `dw` [vocab, width] are fp32, each null if it is not wanted. `weights` [rows] may be null.
void token_losses(const TokenLossShape& shape, const void* x, const void* w, const int64_t* targets,
                  const float* weights, float* losses, float* dx, float* dw, float* scratch);

/// Operations of the products.
int64_t token_loss_flops(const TokenLossShape& shape, bool wants_dx, bool wants_dw);

/// A block of at most 512 rows and its logits against a part of the vocabulary.
struct LossBlock {
  OperandType type = OperandType::fp32;
  int64_t rows = 0;
  int64_t width = 0;
  int64_t columns = 0;
  const void* x = nullptr;  // [rows, width]
  const void* w = nullptr;  // [columns, width]
  float* scratch = nullptr;
};

/// Of a block, in floats.
int64_t loss_block_scratch(OperandType type, int64_t rows, int64_t columns);

/// The logits; most[i] becomes the largest of what it was and of row i.
void block_logits(const LossBlock& block, float* most);

/// into[i]: the logit of column targets[i]; 0 where that is no column of the block.
void target_logits(const LossBlock& block, const int64_t* targets, float* into);

/// Logits become exp(l - most[i]); their sums are added to sums[i].
void block_exponentials(const LossBlock& block, const float* most, float* sums);

/// With maxima and sums of the whole vocabulary: the loss of each row, and its share, weights[i] (1
/// without weights) over the sum; both 0 where a target is below 0.
void finish_losses(int64_t rows, const int64_t* targets, const float* weights, const float* most,
                   const float* sums, const float* of_targets, float* losses, float* shares);

/// Exponentials become gradients of the logits: times share[i], and where row i's target is a
/// column, less weights[i] (1 without weights) there. A share of 0 makes zeros, whatever the
/// exponentials. Then their products with w and x: dx [rows, width] is written, dw [columns, width]
/// written or added to; each null if it is not wanted.
void block_gradients(const LossBlock& block, const float* shares, const int64_t* targets,
                     const float* weights, float* dx, float* dw, bool adds_to_dw);

}  // namespace lockstep::kernels
