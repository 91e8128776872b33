// Norms of rows against plain code of one operation a line: equal bits at each width, a row the
// same among any others.
#include "lockstep/kernels/norm_rows.h"

#include "tests/kernels/spans.h"

namespace lockstep::kernels {
namespace {

constexpr double kEps = 1e-5;

/// As norm_rows.h says it: 16 lanes, then halves.
template <class Number>
Number lane_sum(const std::vector<Number>& terms) {
  Number lane[16] = {};
  for (size_t i = 0; i < terms.size(); ++i) lane[i % 16] += terms[i];
  for (int half = 8; half >= 1; half /= 2) {
    for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
  }
  return lane[0];
}

struct Case {
  bool centered, residual, shift;
};
constexpr Case kCases[] = {{true, true, true},
                           {true, false, true},
                           {true, true, false},
                           {false, true, false},
                           {false, false, false}};

/// Inputs and results of a norm of `rows` rows.
struct Norm {
  Norm(const Case& which_, int64_t rows_, int64_t width_)
      : which(which_),
        rows(rows_),
        width(width_),
        x(span_of(1, rows * width, 3)),
        residual(span_of(2, rows * width, 3)),
        gain(span_of(3, width, 2)),
        shift(span_of(4, width)),
        dy(span_of(5, rows * width)),
        d_sum(span_of(6, rows * width)),
        sum(which.residual ? std::vector<float>(x.size()) : x),
        y(x.size()),
        mean(static_cast<size_t>(rows)),
        rstd(mean.size()),
        ds(x.size()),
        d_gain(gain.size(), -7.0f),
        d_shift(gain.size(), -7.0f) {}

  /// Rows from `first` on, `count` of them.
  void run(int64_t first, int64_t count) {
    const int64_t at = first * width;
    const NormForward forward{.x = x.data() + at,
                              .residual = which.residual ? residual.data() + at : nullptr,
                              .gain = gain.data(),
                              .shift = which.shift ? shift.data() : nullptr,
                              .sum = sum.data() + at,
                              .y = y.data() + at,
                              .mean = mean.data() + first,
                              .rstd = rstd.data() + first,
                              .rows = count,
                              .width = width,
                              .eps = kEps};
    which.centered ? layer_norm(forward) : rms_norm(forward);
    const NormBackward backward{.dy = dy.data() + at,
                                .s = sum.data() + at,
                                .mean = mean.data() + first,
                                .rstd = rstd.data() + first,
                                .gain = gain.data(),
                                .d_sum = which.residual ? d_sum.data() + at : nullptr,
                                .ds = ds.data() + at,
                                .d_gain = d_gain.data(),
                                .d_shift = which.shift ? d_shift.data() : nullptr,
                                .rows = count,
                                .width = width};
    which.centered ? layer_norm_backward(backward) : rms_norm_backward(backward);
  }

  void run_by_element() {
    std::vector<float> gain_block(gain.size()), shift_block(gain.size());
    std::fill(d_gain.begin(), d_gain.end(), 0.0f);
    if (which.shift) std::fill(d_shift.begin(), d_shift.end(), 0.0f);
    for (int64_t row = 0; row < rows; ++row) {
      row_forward(row);
      row_backward(row, gain_block, shift_block);
      if (row % 32 != 31 && row != rows - 1) continue;
      for (int64_t i = 0; i < width; ++i) {
        d_gain[i] += gain_block[i];
        if (which.shift) d_shift[i] += shift_block[i];
        gain_block[i] = shift_block[i] = 0;
      }
    }
  }

  void row_forward(int64_t row) {
    std::vector<double> values, squares;
    for (int64_t i = row * width; i < (row + 1) * width; ++i) {
      if (which.residual) sum[i] = x[i] + residual[i];
      values.push_back(sum[i]);
      squares.push_back(values.back() * values.back());
    }
    const double exact_mean = lane_sum(values) / static_cast<double>(width);
    double spread = lane_sum(squares) / static_cast<double>(width);
    if (which.centered) {
      const double square = exact_mean * exact_mean;
      spread -= square;
      mean[row] = static_cast<float>(exact_mean);
    }
    rstd[row] = static_cast<float>(1 / std::sqrt(spread + kEps));
    for (int64_t i = 0; i < width; ++i) {
      const float scaled = unit(row, i) * gain[i];
      y[row * width + i] = which.shift ? scaled + shift[i] : scaled;
    }
  }

  /// (s - mean) rstd.
  float unit(int64_t row, int64_t i) const {
    const float centered = sum[row * width + i] - mean[row];  // 0 of RMS norm
    return centered * rstd[row];
  }

  void row_backward(int64_t row, std::vector<float>& gain_block, std::vector<float>& shift_block) {
    std::vector<float> v, v_u;
    for (int64_t i = 0; i < width; ++i) {
      v.push_back(dy[row * width + i] * gain[i]);
      v_u.push_back(v.back() * unit(row, i));
    }
    const auto count = static_cast<float>(width);
    const float of_v = which.centered ? lane_sum(v) / count : 0.0f;
    const float of_v_u = lane_sum(v_u) / count;
    for (int64_t i = 0; i < width; ++i) {
      const float along = unit(row, i) * of_v_u;
      const float rest = v[i] - of_v - along;
      const float scaled = rest * rstd[row];
      ds[row * width + i] = which.residual ? scaled + d_sum[row * width + i] : scaled;
      const float of_gain = dy[row * width + i] * unit(row, i);
      gain_block[i] += of_gain;
      shift_block[i] += dy[row * width + i];
    }
  }

  void expect_same_rows(const Norm& expected) const {
    expect_same_bits(sum, expected.sum);
    expect_same_bits(y, expected.y);
    expect_same_bits(mean, expected.mean);
    expect_same_bits(rstd, expected.rstd);
    expect_same_bits(ds, expected.ds);
  }

  Case which;
  int64_t rows, width;
  std::vector<float> x, residual, gain, shift, dy, d_sum;
  std::vector<float> sum, y, mean, rstd, ds, d_gain, d_shift;
};

TEST(NormRows, SameBitsAtEachWidth) {
  for (const Case& which : kCases) {
    for (int64_t width = 1; width <= kLongest; ++width) {
      Norm got(which, 3, width), expected(which, 3, width);
      got.run(0, 3);
      expected.run_by_element();
      got.expect_same_rows(expected);
      expect_same_bits(got.d_gain, expected.d_gain);
      expect_same_bits(got.d_shift, expected.d_shift);
    }
  }
}

TEST(NormRows, ParameterGradientsSumBlocksOfRows) {
  for (const Case& which : kCases) {
    for (const int64_t rows : {0, 1, 31, 32, 33, 65}) {
      Norm got(which, rows, 19), expected(which, rows, 19);
      got.run(0, rows);
      expected.run_by_element();
      expect_same_bits(got.d_gain, expected.d_gain);
      expect_same_bits(got.d_shift, expected.d_shift);
    }
  }
}

TEST(NormRows, ARowIsTheSameAmongAnyOthers) {
  for (const Case& which : kCases) {
    Norm together(which, 5, 33), apart(which, 5, 33);
    together.run(0, 5);
    apart.run(3, 2);
    apart.run(0, 1);
    apart.run(1, 2);
    apart.expect_same_rows(together);
  }
}

TEST(NormRows, EqualNumbersHaveNoSpread) {
  // One walk over squares may leave a variance far below zero; its root would be no number.
  for (int64_t width = 1; width <= kLongest; ++width) {
    Norm norm({true, false, true}, 1, width);
    for (int divisor = 1; divisor < 50; ++divisor) {
      const float value = 1e9f / static_cast<float>(divisor);
      std::fill(norm.x.begin(), norm.x.end(), value);
      norm.sum = norm.x;
      norm.run(0, 1);
      EXPECT_LE(norm.rstd[0], static_cast<float>(1 / std::sqrt(kEps)));
      EXPECT_GT(norm.rstd[0], 0.0f);
    }
  }
}

}  // namespace
}  // namespace lockstep::kernels
