/// Cross-entropy of a head's logits, which exist for a block of rows at a time.
///
///   for 512 rows:    l = x w^T, in tiles of 1024 columns; most = max l, sum = sum of exp(l - most)
///                    loss = most + log sum - l[target]
///                    e = exp(l - most) / sum - [target]
///                    dx = e w,  dw += e^T x      tile by tile, while the tile is in the cache
///
/// dx and dw are those of the sum of the losses: what a gradient that is alike for all tokens
/// scales. A row whose target is below 0 does not count: its loss and gradients are 0.
///
/// Holds   in scratch 512 rows of logits
/// Order   of products: oneDNN's for a block's and a tile's shape; dx by tile, dw by block; of sums
///         along a row 16 lanes a tile, then the tiles in order. Sizes are a part of the kernel
///         set's name
/// Source  docs/concepts/kernels.md
#pragma once

#include <cstdint>

#include "lockstep/kernels/gemm.h"

namespace lockstep::kernels {

inline constexpr int64_t kLossRows = 512;
inline constexpr int64_t kLossColumns = 1024;

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

/// values[i] *= factor
void scale_in_place(float* values, int64_t count, float factor);

}  // namespace lockstep::kernels
