// Norms, alone and with a residual, against LibTorch's operators in float64.
#include "lockstep/fused/norm.h"

#include "lockstep/base/error.h"
#include "lockstep/torch_inside/first_touch.h"
#include "tests/fused/twin.h"

namespace lockstep::fused {
namespace {

constexpr double kEps = 1e-5;

struct Case {
  bool centered, residual, shift;
};
constexpr Case kCases[] = {{true, true, true},   {true, true, false},  {true, false, true},
                           {true, false, false}, {false, true, false}, {false, false, false}};

/// Leaves and outputs of one norm; the same for the float64 twin.
struct Norm {
  at::Tensor x, r, gain, shift;  // r, shift undefined: none
  at::Tensor sum, y;

  Norm(const Case& which, at::IntArrayRef shape)
      : x(leaf(values(1, shape, 2) + 0.5)), gain(leaf(values(3, {shape.back()}))) {
    if (which.residual) r = leaf(values(2, shape, 2));
    if (which.shift) shift = leaf(values(4, {shape.back()}));
  }

  void run(const Case& which) {
    if (which.residual) {
      std::tie(sum, y) = which.centered ? residual_layer_norm(x, r, gain, shift, kEps)
                                        : residual_rms_norm(x, r, gain, kEps);
    } else {
      y = which.centered ? layer_norm(x, gain, shift, kEps) : rms_norm(x, gain, kEps);
    }
  }
  void run_twin(const Case& which) {
    sum = r.defined() ? x + r : x;
    y = which.centered ? at::layer_norm(sum, {sum.size(-1)}, gain, shift, kEps)
                       : sum / (sum * sum).mean(-1, /*keepdim=*/true).add(kEps).sqrt() * gain;
  }
  Norm twin() const {
    Norm other = *this;
    for (at::Tensor* const part : {&other.x, &other.r, &other.gain, &other.shift}) {
      if (part->defined()) *part = twin_of(*part);
    }
    return other;
  }
  void backward(const at::Tensor& d_sum, const at::Tensor& dy) const {
    at::Tensor loss = (y * dy.to(y.dtype())).sum();
    if (r.defined()) loss = loss + (sum * d_sum.to(sum.dtype())).sum();
    loss.backward();
  }
};

/// The bounds, from the twin's values; all are sums of roundings of 2^-24. m: the largest |s| of
/// the row, k = m rstd, u = (s - mean) rstd.
struct Bounds {
  at::Tensor y, ds, d_gain, d_shift;

  Bounds(const Norm& twin, bool centered, const at::Tensor& d_sum, const at::Tensor& dy_) {
    const at::NoGradGuard guard;
    const at::Tensor &s = twin.sum, &gain = twin.gain, dy = dy_.to(at::kDouble);
    const auto average = [](const at::Tensor& x) { return x.mean(-1, /*keepdim=*/true); };
    const at::Tensor mean = centered ? average(s) : torch::zeros({1}, at::kDouble);
    const at::Tensor rstd = (average((s - mean).square()) + kEps).rsqrt();
    const at::Tensor u = (s - mean) * rstd;
    const at::Tensor k = s.abs().amax(-1, /*keepdim=*/true) * rstd;
    // s and the mean are rounded once (m each), the difference, rstd and their product too.
    // Rounding s moves the variance by at most 2 m deviation, and so rstd by k.
    const at::Tensor of_u = 2 * k + u.abs() * (k + 3);
    y = kRound * (gain.abs() * (of_u + u.abs()) + twin.y.abs());
    // ds = rstd (v - average(v) - u average(v u)) + d_sum. An average has width / 16 additions in a
    // lane, 4 in the tree, a division, and v's own rounding.
    const at::Tensor v = dy * gain, of_v = average(v), of_v_u = average(v * u);
    const double additions = static_cast<double>(s.size(-1)) / 16 + 8;
    const at::Tensor inner = v.abs() + of_v.abs() + (u * of_v_u).abs();
    ds =
        kRound * (rstd * (additions * average(v.abs()) +
                          u.abs() * (additions * average((v * u).abs()) + average(v.abs() * of_u)) +
                          of_u * of_v_u.abs() + inner * (k + 6)) +
                  (twin.r.defined() ? (d_sum.abs() + inner * rstd) : at::zeros_like(inner)));
    // 32 rows in a block, then the blocks.
    const at::Tensor rows = dy.reshape({-1, s.size(-1)}), u_rows = u.reshape(rows.sizes());
    const double row_additions = 34 + static_cast<double>(rows.size(0)) / 32;
    d_gain =
        kRound * (rows.abs() * (of_u.reshape(rows.sizes()) + row_additions * u_rows.abs())).sum(0);
    d_shift = kRound * row_additions * rows.abs().sum(0);
  }
};

TEST(FusedNorm, IsTheFormula) {
  for (const Case& which : kCases) {
    for (const int64_t width : kSizes) {
      for (const int64_t rows : {1, 3, 40}) {
        SCOPED_TRACE(testing::Message() << rows << " rows of " << width << ", centered "
                                        << which.centered << ", residual " << which.residual);
        Norm ours(which, {rows, 2, width}), twin = ours.twin();
        const at::Tensor d_sum = values(5, ours.x.sizes()), dy = values(6, ours.x.sizes());
        ours.run(which);
        twin.run_twin(which);
        ours.backward(d_sum, dy);
        twin.backward(d_sum, dy);
        const Bounds bounds(twin, which.centered, d_sum, dy);
        expect_within(ours.y, twin.y, bounds.y);
        expect_within(ours.x.grad(), twin.x.grad(), bounds.ds);
        expect_within(ours.gain.grad(), twin.gain.grad(), bounds.d_gain);
        if (which.shift) expect_within(ours.shift.grad(), twin.shift.grad(), bounds.d_shift);
        if (which.residual) {
          EXPECT_TRUE(same_bits(ours.sum, ours.x + ours.r));
          EXPECT_TRUE(same_bits(ours.r.grad(), ours.x.grad()));
        }
      }
    }
  }
}

TEST(FusedNorm, RowsDoNotKnowOfEachOther) {
  for (const Case& which : kCases) {
    Norm all(which, {6, 17}), shaped(which, {2, 3, 17});
    const at::Tensor d_sum = values(5, {6, 17}), dy = values(6, {6, 17});
    all.run(which);
    all.backward(d_sum, dy);
    shaped.run(which);
    shaped.backward(d_sum.view({2, 3, 17}), dy.view({2, 3, 17}));
    EXPECT_TRUE(same_bits(shaped.x.grad().view({6, 17}), all.x.grad()));
    EXPECT_TRUE(same_bits(shaped.gain.grad(), all.gain.grad())) << "the same rows, the same sum";
    Norm one(which, {6, 17});
    one.x = leaf(all.x.narrow(0, 4, 1));
    if (which.residual) one.r = leaf(all.r.narrow(0, 4, 1));
    one.run(which);
    one.backward(d_sum.narrow(0, 4, 1), dy.narrow(0, 4, 1));
    EXPECT_TRUE(same_bits(one.y, all.y.narrow(0, 4, 1)));
    EXPECT_TRUE(same_bits(one.x.grad(), all.x.grad().narrow(0, 4, 1)));
  }
}

TEST(FusedNorm, OfNoRowsHasZeroGradients) {
  for (const Case& which : kCases) {
    Norm none(which, {0, 5});
    none.run(which);
    none.backward(torch::empty({0, 5}), torch::empty({0, 5}));
    EXPECT_EQ(none.y.sizes(), (std::vector<int64_t>{0, 5}));
    EXPECT_TRUE(same_bits(none.gain.grad(), torch::zeros({5})));
    if (which.shift) {
      EXPECT_TRUE(same_bits(none.shift.grad(), torch::zeros({5})));
    }
  }
}

TEST(FusedNorm, OneOutputMayBeUnused) {
  const Case which{.centered = true, .residual = true, .shift = true};
  const at::Tensor g = values(5, {4, 17});
  Norm stream_only(which, {4, 17});
  stream_only.run(which);
  stream_only.sum.backward(g);
  EXPECT_TRUE(same_bits(stream_only.x.grad(), g));
  EXPECT_TRUE(same_bits(stream_only.r.grad(), g));
  EXPECT_FALSE(stream_only.gain.grad().defined());
  Norm norm_only(which, {4, 17}), both(which, {4, 17});
  norm_only.run(which);
  norm_only.y.backward(g);
  both.run(which);
  both.backward(torch::zeros({4, 17}), g);
  EXPECT_TRUE(torch::equal(norm_only.x.grad(), both.x.grad()));
  EXPECT_TRUE(same_bits(norm_only.gain.grad(), both.gain.grad()));
}

TEST(FusedNorm, WhatIsFrozenGetsNoGradientAndChangesNone) {
  for (const Case& which : kCases) {
    Norm all(which, {4, 17});
    const at::Tensor d_sum = values(5, {4, 17}), dy = values(6, {4, 17});
    all.run(which);
    all.backward(d_sum, dy);
    at::Tensor Norm::*const parts[] = {&Norm::x, &Norm::r, &Norm::gain, &Norm::shift};
    for (at::Tensor Norm::*const frozen : parts) {
      if (!(all.*frozen).defined()) continue;
      Norm some(which, {4, 17});
      (some.*frozen).requires_grad_(false);
      some.run(which);
      some.backward(d_sum, dy);
      for (at::Tensor Norm::*const part : parts) {
        if (!(all.*part).defined()) continue;
        if (part == frozen) {
          EXPECT_FALSE((some.*part).grad().defined());
        } else {
          EXPECT_TRUE(same_bits((some.*part).grad(), (all.*part).grad()));
        }
      }
    }
  }
}

TEST(FusedNorm, ReadsParametersWhoseMemoryIsReleased) {
  const Case which{.centered = true, .residual = true, .shift = true};
  Norm expected(which, {4, 17}), got(which, {4, 17});
  const at::Tensor d_sum = values(5, {4, 17}), dy = values(6, {4, 17});
  expected.run(which);
  expected.backward(d_sum, dy);

  int gathers = 0;
  bool here = false;
  torch_inside::ReleasableStorage* of_unit = nullptr;
  torch_inside::ReleasableStorage unit(34, [&] {
    if (std::exchange(here, true)) return;
    ++gathers;
    of_unit->allocate();
    of_unit->flat().narrow(0, 0, 17).copy_(expected.gain.detach());
    of_unit->flat().narrow(0, 17, 17).copy_(expected.shift.detach());
  });
  of_unit = &unit;
  got.gain.set_data(unit.watched({17}, 0));
  got.shift.set_data(unit.watched({17}, 17));
  const auto release = [&] {
    unit.release();
    here = false;
  };
  got.run(which);
  EXPECT_EQ(gathers, 1);
  release();
  got.backward(d_sum, dy);
  EXPECT_EQ(gathers, 2);
  EXPECT_TRUE(same_bits(got.y, expected.y));
  EXPECT_TRUE(same_bits(got.x.grad(), expected.x.grad()));
  EXPECT_TRUE(same_bits(got.gain.grad(), expected.gain.grad()));
}

TEST(FusedNorm, RefusesWhatItDoesNotCompute) {
  const at::Tensor x = torch::zeros({2, 3}), gain = torch::ones({3});
  EXPECT_THROW(layer_norm(x.to(at::kDouble), gain, {}, kEps), UsageError);
  EXPECT_THROW(rms_norm(x, torch::ones({4}), kEps), UsageError);
  EXPECT_THROW(layer_norm(x, gain, torch::ones({4}), kEps), UsageError);
  EXPECT_THROW(residual_rms_norm(x, torch::zeros({3}), gain, kEps), UsageError);
}

}  // namespace
}  // namespace lockstep::fused
