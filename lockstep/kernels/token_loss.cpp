#include "lockstep/kernels/token_loss.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/kernels/detail/clones.h"
#include "lockstep/kernels/detail/exp.h"
#include "lockstep/kernels/detail/lane_sum.h"
#include "lockstep/kernels/rounding.h"
#include "lockstep/kernels/span.h"

namespace lockstep::kernels {
namespace {

/// most[i]: of what it was and a tile's row.
LOCKSTEP_CLONES void raise_maxima(float* __restrict most, const float* __restrict tile,
                                  int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows; ++i) {
    most[i] = std::max(most[i], detail::lane_max(tile + i * columns, columns));
  }
}

/// A tile of logits becomes exp(l - most); its sums join those before.
LOCKSTEP_CLONES void exponentials(float* __restrict tile, float* __restrict sums,
                                  const float* __restrict most, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows; ++i) {
    float* __restrict row = tile + i * columns;
    const float m = most[i];
    for (int64_t j = 0; j < columns; ++j) row[j] = detail::exp(row[j] - m);
    sums[i] += detail::lane_sum(columns, [row](int64_t j) { return row[j]; });
  }
}

const void* at(OperandType type, const void* operand, int64_t element) {
  const int64_t size = type == OperandType::bf16 ? 2 : 4;
  return static_cast<const char*>(operand) + element * size;
}

/// Tiles lie one behind the other: `use(first column, columns, tile)`.
template <class Use>
void for_each_tile(const LossBlock& block, const Use& use) {
  for (int64_t c = 0; c < block.columns; c += kLossColumns) {
    use(c, std::min(kLossColumns, block.columns - c), block.scratch + c * block.rows);
  }
}

bool is_in(int64_t target, int64_t first, int64_t count) {
  return target >= first && target < first + count;
}

}  // namespace

int64_t loss_block_scratch(OperandType type, int64_t rows, int64_t columns) {
  const int64_t rounded = rows * std::min(kLossColumns, columns);
  return rows * columns + (type == OperandType::bf16 ? (rounded + 1) / 2 : 0);
}

void block_logits(const LossBlock& block, float* most) {
  for_each_tile(block, [&](int64_t c, int64_t n, float* tile) {
    gemm(packed_gemm(block.type, block.rows, n, block.width, false, true), block.x,
         at(block.type, block.w, c * block.width), tile);
    raise_maxima(most, tile, block.rows, n);
  });
}

void target_logits(const LossBlock& block, const int64_t* targets, float* into) {
  std::fill_n(into, block.rows, 0.0F);
  for_each_tile(block, [&](int64_t c, int64_t n, const float* tile) {
    for (int64_t i = 0; i < block.rows; ++i) {
      if (is_in(targets[i], c, n)) into[i] = tile[i * n + targets[i] - c];
    }
  });
}

void block_exponentials(const LossBlock& block, const float* most, float* sums) {
  for_each_tile(block, [&](int64_t, int64_t n, float* tile) {
    exponentials(tile, sums, most, block.rows, n);
  });
}

void finish_losses(int64_t rows, const int64_t* targets, const float* weights, const float* most,
                   const float* sums, const float* of_targets, float* losses, float* shares) {
  for (int64_t i = 0; i < rows; ++i) {
    const bool counts = targets[i] >= 0;
    losses[i] = counts ? most[i] + std::log(sums[i]) - of_targets[i] : 0.0F;
    shares[i] = counts ? (weights == nullptr ? 1.0F : weights[i]) / sums[i] : 0.0F;
  }
}

void block_gradients(const LossBlock& block, const float* shares, const int64_t* targets,
                     const float* weights, float* dx, float* dw, bool adds_to_dw) {
  const int64_t m = block.rows, D = block.width;
  auto* const rounded = reinterpret_cast<uint16_t*>(block.scratch + m * block.columns);
  if (dx != nullptr && block.columns == 0) std::fill_n(dx, m * D, 0.0F);
  for_each_tile(block, [&](int64_t c, int64_t n, float* tile) {
    scale_rows(tile, shares, m, n);
    for (int64_t i = 0; i < m; ++i) {
      // A product with 0 would keep a NaN.
      if (shares[i] == 0) std::fill_n(tile + i * n, n, 0.0F);
      if (is_in(targets[i], c, n)) {
        tile[i * n + targets[i] - c] -= weights == nullptr ? 1.0F : weights[i];
      }
    }
    const void* errors = tile;
    if (block.type == OperandType::bf16) {
      to_bf16(rounded, tile, m * n);
      errors = rounded;
    }
    if (dx != nullptr) {
      Gemm product = packed_gemm(block.type, m, D, n, false, false);
      product.adds = c > 0;
      gemm(product, errors, at(block.type, block.w, c * D), dx);
    }
    if (dw != nullptr) {
      Gemm product = packed_gemm(block.type, n, D, m, true, false);
      product.adds = adds_to_dw;
      gemm(product, errors, block.x, dw + c * D);
    }
  });
}

int64_t token_loss_scratch(const TokenLossShape& shape) {
  const int64_t rows = std::min(kLossRows, shape.rows);
  return loss_block_scratch(shape.type, rows, shape.vocab) + 4 * rows;
}

int64_t token_loss_flops(const TokenLossShape& shape, bool wants_dx, bool wants_dw) {
  return 2 * shape.rows * shape.width * shape.vocab * (1 + (wants_dx ? 1 : 0) + (wants_dw ? 1 : 0));
}

void token_losses(const TokenLossShape& shape, const void* x, const void* w, const int64_t* targets,
                  const float* weights, float* losses, float* dx, float* dw, float* scratch) {
  const int64_t D = shape.width;
  const int64_t whole = std::min(kLossRows, shape.rows);
  float* const most = scratch;
  float* const sums = most + whole;
  float* const of_targets = sums + whole;
  float* const shares = of_targets + whole;
  if (dw != nullptr && shape.rows == 0) std::fill_n(dw, shape.vocab * D, 0.0F);
  for (int64_t r = 0; r < shape.rows; r += kLossRows) {
    const LossBlock block{.type = shape.type,
                          .rows = std::min(kLossRows, shape.rows - r),
                          .width = D,
                          .columns = shape.vocab,
                          .x = at(shape.type, x, r * D),
                          .w = w,
                          .scratch = shares + whole};
    std::fill_n(most, block.rows, -std::numeric_limits<float>::infinity());
    std::fill_n(sums, block.rows, 0.0F);
    block_logits(block, most);
    target_logits(block, targets + r, of_targets);
    block_exponentials(block, most, sums);
    const float* const of_rows = weights == nullptr ? nullptr : weights + r;
    finish_losses(block.rows, targets + r, of_rows, most, sums, of_targets, losses + r, shares);
    if (dx == nullptr && dw == nullptr) continue;
    block_gradients(block, shares, targets + r, of_rows, dx == nullptr ? nullptr : dx + r * D, dw,
                    /*adds_to_dw=*/r > 0);
  }
}

}  // namespace lockstep::kernels
