#include "lockstep/kernels/norm_rows.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "lockstep/kernels/detail/clones.h"
#include "lockstep/kernels/detail/lanes.h"
#include "lockstep/kernels/span.h"

namespace lockstep::kernels {
namespace {

using detail::for_each_lane;
using detail::kLanes;

constexpr int64_t kRowBlock = 32;  // rows that gain and shift gradients sum before the blocks meet

struct Moments {
  double mean;
  double mean_square;
};

struct Averages {
  float v;
  float v_u;
};

[[gnu::always_inline]] inline Moments moments_of(double (&sum)[kLanes], double (&squares)[kLanes],
                                                 int64_t width) {
  const auto count = static_cast<double>(width);
  return {detail::lane_tree(sum) / count, detail::lane_tree(squares) / count};
}

/// Of s and of its square. The square of a float is exact in fp64, so one walk is enough: the
/// variance is off by roundings of 2^-53 times the mean square.
LOCKSTEP_CLONES
Moments moments(const float* __restrict s, int64_t width) {
  double sum[kLanes] = {}, squares[kLanes] = {};
  for_each_lane(
      width, [&](int64_t i, int64_t lane) __attribute__((always_inline)) {
        const double value = s[i];
        sum[lane] += value;
        squares[lane] += value * value;
      });
  return moments_of(sum, squares, width);
}

LOCKSTEP_CLONES
Moments add_and_moments(float* __restrict s, const float* __restrict x,
                        const float* __restrict residual, int64_t width) {
  double sum[kLanes] = {}, squares[kLanes] = {};
  for_each_lane(
      width, [&](int64_t i, int64_t lane) __attribute__((always_inline)) {
        const float added = x[i] + residual[i];
        s[i] = added;
        const double value = added;
        sum[lane] += value;
        squares[lane] += value * value;
      });
  return moments_of(sum, squares, width);
}

LOCKSTEP_CLONES
void scale_and_shift(float* __restrict y, const float* __restrict s, const float* __restrict gain,
                     const float* __restrict shift, float mean, float rstd, int64_t width) {
  for (int64_t i = 0; i < width; ++i) y[i] = (s[i] - mean) * rstd * gain[i] + shift[i];
}

LOCKSTEP_CLONES
void scale(float* __restrict y, const float* __restrict s, const float* __restrict gain, float mean,
           float rstd, int64_t width) {
  for (int64_t i = 0; i < width; ++i) y[i] = (s[i] - mean) * rstd * gain[i];
}

/// Sums of v and of v u, lane by lane.
struct GradientSums {
  detail::Lanes v{};
  detail::Lanes v_u{};
};

/// Adds those of 16 elements.
[[gnu::always_inline]] inline void add_terms(GradientSums& sums, const float* dy, const float* s,
                                             const float* gain, float mean, float rstd) {
  const detail::Lanes v = detail::lanes_at(dy) * detail::lanes_at(gain);
  sums.v += v;
  sums.v_u += v * ((detail::lanes_at(s) - mean) * rstd);
}

/// Averages of v and of v u.
LOCKSTEP_CLONES
Averages gradient_averages(const float* __restrict dy, const float* __restrict s,
                           const float* __restrict gain, float mean, float rstd, int64_t width) {
  GradientSums sums;
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) add_terms(sums, dy + i, s + i, gain + i, mean, rstd);
  if (i < width) {
    // Products with zeros: no lane holds -0, so adding them changes no bit.
    float last[3][kLanes] = {};
    std::copy_n(dy + i, width - i, last[0]);
    std::copy_n(s + i, width - i, last[1]);
    std::copy_n(gain + i, width - i, last[2]);
    add_terms(sums, last[0], last[1], last[2], mean, rstd);
  }
  const auto count = static_cast<float>(width);
  return {detail::lane_tree(sums.v) / count, detail::lane_tree(sums.v_u) / count};
}

struct RowGradient {
  float mean, rstd;
  float of_v, of_v_u;  // averages
};

LOCKSTEP_CLONES
void input_gradient(float* __restrict ds, const float* __restrict dy, const float* __restrict s,
                    const float* __restrict gain, RowGradient row, int64_t width) {
  for (int64_t i = 0; i < width; ++i) {
    const float u = (s[i] - row.mean) * row.rstd;
    ds[i] = (dy[i] * gain[i] - row.of_v - u * row.of_v_u) * row.rstd;
  }
}

LOCKSTEP_CLONES
void input_gradient_added(float* __restrict ds, const float* __restrict dy,
                          const float* __restrict s, const float* __restrict gain,
                          const float* __restrict d_sum, RowGradient row, int64_t width) {
  for (int64_t i = 0; i < width; ++i) {
    const float u = (s[i] - row.mean) * row.rstd;
    ds[i] = (dy[i] * gain[i] - row.of_v - u * row.of_v_u) * row.rstd + d_sum[i];
  }
}

LOCKSTEP_CLONES
void add_gain_gradient(float* __restrict d_gain, const float* __restrict dy,
                       const float* __restrict s, float mean, float rstd, int64_t width) {
  for (int64_t i = 0; i < width; ++i) d_gain[i] += dy[i] * ((s[i] - mean) * rstd);
}

enum class Kind { layer, rms };

template <Kind kKind>
void forward(const NormForward& n) {
  for (int64_t row = 0; row < n.rows; ++row) {
    const int64_t at = row * n.width;
    const bool adds = n.residual != nullptr;
    const float* const s = (adds ? n.sum : n.x) + at;
    const Moments of_row = adds ? add_and_moments(n.sum + at, n.x + at, n.residual + at, n.width)
                                : moments(s, n.width);
    double spread = of_row.mean_square;
    float mean = 0;
    if constexpr (kKind == Kind::layer) {
      spread -= of_row.mean * of_row.mean;
      if (spread < 0) spread = 0;  // of equal numbers, by rounding
      n.mean[row] = mean = static_cast<float>(of_row.mean);
    }
    const auto rstd = static_cast<float>(1 / std::sqrt(spread + n.eps));
    n.rstd[row] = rstd;
    if (n.shift != nullptr) {
      scale_and_shift(n.y + at, s, n.gain, n.shift, mean, rstd, n.width);
    } else {
      scale(n.y + at, s, n.gain, mean, rstd, n.width);
    }
  }
}

template <Kind kKind>
void backward(const NormBackward& n) {
  const size_t width = n.d_gain != nullptr ? static_cast<size_t>(n.width) : 0;
  std::vector<float> gain_block(width), shift_block(n.d_shift != nullptr ? width : 0);
  std::fill_n(n.d_gain, width, 0.0f);
  std::fill_n(n.d_shift, shift_block.size(), 0.0f);
  for (int64_t row = 0; row < n.rows; ++row) {
    const int64_t at = row * n.width;
    const float* const dy = n.dy + at;
    const float* const s = n.s + at;
    RowGradient of_row{kKind == Kind::layer ? n.mean[row] : 0, n.rstd[row], 0, 0};
    if (n.ds != nullptr) {
      const Averages averages = gradient_averages(dy, s, n.gain, of_row.mean, of_row.rstd, n.width);
      if (kKind == Kind::layer) of_row.of_v = averages.v;
      of_row.of_v_u = averages.v_u;
      if (n.d_sum != nullptr) {
        input_gradient_added(n.ds + at, dy, s, n.gain, n.d_sum + at, of_row, n.width);
      } else {
        input_gradient(n.ds + at, dy, s, n.gain, of_row, n.width);
      }
    }
    if (n.d_gain == nullptr) continue;
    add_gain_gradient(gain_block.data(), dy, s, of_row.mean, of_row.rstd, n.width);
    if (n.d_shift != nullptr) add(shift_block.data(), dy, n.width);
    if (row % kRowBlock == kRowBlock - 1 || row == n.rows - 1) {
      add(n.d_gain, gain_block.data(), n.width);
      std::fill(gain_block.begin(), gain_block.end(), 0.0f);
      if (n.d_shift != nullptr) add(n.d_shift, shift_block.data(), n.width);
      std::fill(shift_block.begin(), shift_block.end(), 0.0f);
    }
  }
}

}  // namespace

void layer_norm(const NormForward& norm) { forward<Kind::layer>(norm); }
void rms_norm(const NormForward& norm) { forward<Kind::rms>(norm); }
void layer_norm_backward(const NormBackward& norm) { backward<Kind::layer>(norm); }
void rms_norm_backward(const NormBackward& norm) { backward<Kind::rms>(norm); }

}  // namespace lockstep::kernels
