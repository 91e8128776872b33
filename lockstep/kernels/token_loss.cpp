#include "lockstep/kernels/token_loss.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/kernels/detail/clones.h"
#include "lockstep/kernels/detail/exp.h"
#include "lockstep/kernels/detail/lane_sum.h"
#include "lockstep/kernels/rounding.h"

namespace lockstep::kernels {
namespace {

int64_t block_rows(const TokenLossShape& shape) { return std::min(kLossRows, shape.rows); }

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

LOCKSTEP_CLONES void scale_rows(float* __restrict tile, const float* __restrict factors,
                                int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows; ++i) {
    float* __restrict row = tile + i * columns;
    const float factor = factors[i];
    for (int64_t j = 0; j < columns; ++j) row[j] *= factor;
  }
}

const void* at(const TokenLossShape& shape, const void* operand, int64_t element) {
  const int64_t size = shape.type == OperandType::bf16 ? 2 : 4;
  return static_cast<const char*>(operand) + element * size;
}

}  // namespace

int64_t token_loss_scratch(const TokenLossShape& shape) {
  const int64_t rows = block_rows(shape);
  // Logits, a rounded tile, and most, sum, target logit and share of each row.
  return rows * shape.vocab + rows * kLossColumns / 2 + 16 + 4 * rows;
}

int64_t token_loss_flops(const TokenLossShape& shape, bool wants_dx, bool wants_dw) {
  return 2 * shape.rows * shape.width * shape.vocab * (1 + (wants_dx ? 1 : 0) + (wants_dw ? 1 : 0));
}

void token_losses(const TokenLossShape& shape, const void* x, const void* w, const int64_t* targets,
                  const float* weights, float* losses, float* dx, float* dw, float* scratch) {
  const int64_t D = shape.width, V = shape.vocab, block = block_rows(shape);
  float* const most = scratch;
  float* const sums = most + block;
  float* const target_logits = sums + block;
  float* const shares = target_logits + block;
  float* const logits = shares + block;
  auto* const rounded = reinterpret_cast<uint16_t*>(logits + block * V);
  if (dw != nullptr && shape.rows == 0) std::fill_n(dw, V * D, 0.0F);
  for (int64_t r = 0; r < shape.rows; r += block) {
    const int64_t m = std::min(block, shape.rows - r);
    std::fill_n(most, m, -std::numeric_limits<float>::infinity());
    std::fill_n(sums, m, 0.0F);
    const auto for_each_tile = [&](const auto& use) {
      for (int64_t c = 0; c < V; c += kLossColumns) {
        use(c, std::min(kLossColumns, V - c), logits + c * m);
      }
    };
    const auto target_in = [&](int64_t i, int64_t c, int64_t n) {
      const int64_t target = targets[r + i];
      return target >= c && target < c + n;
    };
    for_each_tile([&](int64_t c, int64_t n, float* tile) {
      gemm(packed_gemm(shape.type, m, n, D, false, true), at(shape, x, r * D), at(shape, w, c * D),
           tile);
      raise_maxima(most, tile, m, n);
      for (int64_t i = 0; i < m; ++i) {
        if (target_in(i, c, n)) target_logits[i] = tile[i * n + targets[r + i] - c];
      }
    });
    for_each_tile([&](int64_t, int64_t n, float* tile) { exponentials(tile, sums, most, m, n); });
    for (int64_t i = 0; i < m; ++i) {
      const bool counts = targets[r + i] >= 0;
      losses[r + i] = counts ? most[i] + std::log(sums[i]) - target_logits[i] : 0.0F;
      shares[i] = (weights == nullptr ? 1.0F : weights[r + i]) / sums[i];
    }
    if (dx == nullptr && dw == nullptr) continue;
    for_each_tile([&](int64_t c, int64_t n, float* tile) {
      scale_rows(tile, shares, m, n);
      for (int64_t i = 0; i < m; ++i) {
        // Not by a share of 0: that would keep a NaN.
        if (targets[r + i] < 0) std::fill_n(tile + i * n, n, 0.0F);
        if (target_in(i, c, n))
          tile[i * n + targets[r + i] - c] -= weights == nullptr ? 1.0F : weights[r + i];
      }
      const void* errors = tile;
      if (shape.type == OperandType::bf16) {
        to_bf16(rounded, tile, m * n);
        errors = rounded;
      }
      if (dx != nullptr) {
        Gemm product = packed_gemm(shape.type, m, D, n, false, false);
        product.adds = c > 0;
        gemm(product, errors, at(shape, w, c * D), dx + r * D);
      }
      if (dw != nullptr) {
        Gemm product = packed_gemm(shape.type, n, D, m, true, false);
        product.adds = r > 0;
        gemm(product, errors, at(shape, x, r * D), dw + c * D);
      }
    });
  }
}

LOCKSTEP_CLONES void scale_in_place(float* values, int64_t count, float factor) {
  for (int64_t i = 0; i < count; ++i) values[i] *= factor;
}

}  // namespace lockstep::kernels
