// Causal attention against softmax of whole score matrices in float64.
#include "lockstep/fused/attention.h"

#include <cmath>

#include "lockstep/kernels/dropout_mask.h"
#include "tests/fused/twin.h"

namespace lockstep::fused {
namespace {

struct Case {
  const char* name;
  int64_t slices, samples, sequence, heads, kv_heads, width;
  bool rotary = false;
  double dropout = 0;
  plan::ComputeType compute = plan::ComputeType::fp32;
};

// Below, at and above a block of 64 queries; odd widths; grouped heads; token slices.
const std::vector<Case> kCases = {
    {"one_token", 1, 1, 1, 1, 1, 2},
    {"odd", 1, 2, 11, 3, 3, 5},
    {"a_block", 1, 1, 64, 2, 2, 16},
    {"blocks", 1, 2, 150, 2, 1, 8},
    {"slices", 3, 2, 75, 2, 2, 6},
    {"rotary", 1, 2, 70, 4, 2, 8, true},
    {"dropout", 2, 2, 70, 4, 2, 8, true, 0.3},
    {"bf16", 1, 2, 150, 2, 1, 8, true, 0, plan::ComputeType::bf16},
};

AttentionSettings settings_of(const Case& of) {
  AttentionSettings settings{.arithmetic = {.fused = true, .compute = of.compute},
                             .heads = of.heads,
                             .kv_heads = of.kv_heads,
                             .scale = 1 / std::sqrt(static_cast<double>(of.width)),
                             .cos = {},
                             .sin = {},
                             .dropout = of.dropout,
                             .first_head = 2};
  if (of.rotary) {
    const at::Tensor angles = values(9, {of.sequence, of.width / 2}, 3);
    settings.cos = angles.cos();
    settings.sin = angles.sin();
  }
  for (int64_t b = 0; b < of.samples; ++b) {
    settings.keys.push_back(base::RandomKey(77).with(static_cast<uint64_t>(b)));
  }
  return settings;
}

/// The factors of dropout [B, h, S, S].
at::Tensor mask_of(const Case& of, const AttentionSettings& settings) {
  at::Tensor mask = torch::ones({of.samples, of.heads, of.sequence, of.sequence});
  if (of.dropout == 0) return mask.to(at::kDouble);
  const int64_t square = of.sequence * of.sequence;
  for (int64_t b = 0; b < of.samples; ++b) {
    for (int64_t h = 0; h < of.heads; ++h) {
      kernels::dropout_mask(mask.data_ptr<float>() + (b * of.heads + h) * square,
                            (settings.first_head + h) * square, square,
                            settings.keys[static_cast<size_t>(b)], of.dropout);
    }
  }
  return mask.to(at::kDouble);
}

/// [T, B, S/T, n K] -> [B, n, S, K].
at::Tensor heads_of(const at::Tensor& rows, const Case& of, int64_t heads) {
  return rows.reshape({of.slices, of.samples, of.sequence / of.slices, heads, of.width})
      .permute({1, 3, 0, 2, 4})
      .reshape({of.samples, heads, of.sequence, of.width});
}

at::Tensor rows_of(const at::Tensor& heads, const Case& of) {
  return heads.reshape({of.samples, heads.size(1), of.slices, -1, of.width})
      .permute({2, 0, 3, 1, 4})
      .reshape({of.slices, of.samples, of.sequence / of.slices, -1});
}

at::Tensor turned(const at::Tensor& x, const AttentionSettings& settings) {
  if (!settings.cos.defined()) return x;
  const auto halves = x.chunk(2, -1);
  const at::Tensor cos = settings.cos.to(x.dtype()), sin = settings.sin.to(x.dtype());
  return at::cat({halves[0] * cos - halves[1] * sin, halves[1] * cos + halves[0] * sin}, -1);
}

/// The twin's values, [B, h, S, ...] in float64, keys and values once for each query head.
struct Twin {
  Twin(const Case& of, const AttentionSettings& settings, const at::Tensor& qkv,
       const at::Tensor& d_out)
      : input(twin_of(qkv)) {
    const int64_t H = of.heads * of.width, J = of.kv_heads * of.width;
    const auto parts = input.split_with_sizes({H, J, J}, -1);
    const int64_t G = of.heads / of.kv_heads;
    q = turned(heads_of(parts[0], of, of.heads), settings);
    k = turned(heads_of(parts[1], of, of.kv_heads), settings).repeat_interleave(G, 1);
    v = heads_of(parts[2], of, of.kv_heads).repeat_interleave(G, 1);
    for (at::Tensor* part : {&q, &k, &v}) part->retain_grad();
    const at::Tensor hidden = torch::ones({of.sequence, of.sequence}, at::kBool).triu(1);
    s = (at::matmul(q, k.transpose(-2, -1)) * settings.scale).masked_fill(hidden, -INFINITY);
    p = at::softmax(s, -1);
    mask = mask_of(of, settings);
    out = at::matmul(p * mask, v);
    g = heads_of(d_out.to(at::kDouble), of, of.heads);
    rows_of(out, of).backward(d_out.to(at::kDouble));
  }
  at::Tensor input, q, k, v, s, p, mask, out, g;
};

/// Bounds of a first order, with a tenth for the others. u = 2^-24; r: what operands of products
/// are rounded by, 0 in fp32, 2^-8 in bf16.
struct Bounds {
  Bounds(const Case& of, const AttentionSettings& settings, const Twin& t) {
    const at::NoGradGuard guard;
    const double u = kRound, r = of.compute == plan::ComputeType::bf16 ? 0x1p-8 : 0;
    const double K = static_cast<double>(of.width), S = static_cast<double>(of.sequence);
    // A score: K products and additions, operands turned (3 roundings) and rounded, and the scale.
    const at::Tensor sizes = at::matmul(t.q.abs(), t.k.abs().transpose(-2, -1)) * settings.scale;
    const double turns = settings.cos.defined() ? 3 : 0;
    // Turning adds two products, whose sizes can exceed the result's by sqrt 2.
    const at::Tensor e_s = sizes * ((K + 2 + 4 * turns) * u + 2 * r);
    const at::Tensor worst = e_s.amax(-1, true);
    // A probability: its own score and those of the sum, the exponential's 4 u, S / 16 + 6
    // additions, the division, mask and the rounding of the operand.
    const at::Tensor largest = t.s.masked_fill(t.s.isinf(), 0).abs().amax(-1, true);
    const at::Tensor e_p = 2 * worst + (2 * largest + S / 16 + 16) * u + r;
    const at::Tensor pm = t.p * t.mask;
    out = 1.1 * (at::matmul(pm * (e_p + (S + 2) * u + r), t.v.abs()));
    dv = 1.1 * at::matmul((pm * (e_p + (S + 2) * u + r)).transpose(-2, -1), t.g.abs());
    // ds = p (m dp - along) scale; dp = g v^T; along = sum of o g.
    const at::Tensor dp = at::matmul(t.g, t.v.transpose(-2, -1)) * t.mask;
    const at::Tensor e_dp =
        at::matmul(t.g.abs(), t.v.abs().transpose(-2, -1)) * t.mask * ((K + 2) * u + 2 * r);
    const at::Tensor along = (t.out * t.g).sum(-1, true);
    const at::Tensor e_along =
        (t.g.abs() * out).sum(-1, true) + (K / 16 + 8) * u * (t.out * t.g).abs().sum(-1, true);
    const at::Tensor ds = t.p * (dp - along).abs() * settings.scale;
    const at::Tensor e_ds =
        t.p * settings.scale * ((dp.abs() + along.abs()) * (e_p + 4 * u + r) + e_dp + e_along);
    dq = 1.1 * at::matmul(e_ds + ds * ((S + 2) * u + r), t.k.abs());
    dk = 1.1 * at::matmul((e_ds + ds * ((S + 2) * u + r)).transpose(-2, -1), t.q.abs());
  }
  at::Tensor out, dq, dk, dv;
};

/// Sums of the query heads that share a head of keys.
at::Tensor grouped(const at::Tensor& x, const Case& of) {
  return x.reshape({of.samples, of.kv_heads, -1, of.sequence, of.width}).sum(2);
}

class AttentionOf : public ::testing::TestWithParam<Case> {};

TEST_P(AttentionOf, IsSoftmaxOfScores) {
  const Case& of = GetParam();
  const AttentionSettings settings = settings_of(of);
  const int64_t s = of.sequence / of.slices;
  const int64_t width = (of.heads + 2 * of.kv_heads) * of.width;
  const at::Tensor qkv = leaf(values(1, {of.slices, of.samples, s, width}));
  const at::Tensor d_out = values(2, {of.slices, of.samples, s, of.heads * of.width});
  const at::Tensor out = attention(qkv, settings);
  out.backward(d_out);
  const Twin twin(of, settings, qkv, d_out);
  const Bounds bounds(of, settings, twin);

  expect_within(heads_of(out.detach(), of, of.heads), twin.out, bounds.out);
  const int64_t H = of.heads * of.width, J = of.kv_heads * of.width;
  const auto got = qkv.grad().split_with_sizes({H, J, J}, -1);
  const auto exact = twin.input.grad().split_with_sizes({H, J, J}, -1);
  // A gradient that is turned back mixes two features: both bounds, and three roundings.
  const auto of_pair = [&](const at::Tensor& bound, const at::Tensor& gradient) {
    if (!of.rotary) return bound;
    const at::Tensor both = bound + 4 * kRound * gradient.abs();
    return both + at::cat({both.chunk(2, -1)[1], both.chunk(2, -1)[0]}, -1);
  };
  {
    SCOPED_TRACE("queries");
    expect_within(heads_of(got[0], of, of.heads), heads_of(exact[0], of, of.heads),
                  of_pair(bounds.dq, twin.q.grad()));
  }
  {
    SCOPED_TRACE("keys");
    expect_within(heads_of(got[1], of, of.kv_heads), heads_of(exact[1], of, of.kv_heads),
                  of_pair(grouped(bounds.dk, of), grouped(twin.k.grad().abs(), of)));
  }
  {
    SCOPED_TRACE("values");
    expect_within(heads_of(got[2], of, of.kv_heads), heads_of(exact[2], of, of.kv_heads),
                  grouped(bounds.dv, of));
  }
}

// A sample has the same bits among any others: who computes which samples is layout.
TEST_P(AttentionOf, SamplesDoNotMeet) {
  Case of = GetParam();
  const AttentionSettings settings = settings_of(of);
  const int64_t s = of.sequence / of.slices, width = (of.heads + 2 * of.kv_heads) * of.width;
  const at::Tensor qkv = values(1, {of.slices, of.samples, s, width});
  const at::Tensor whole = attention(qkv, settings);
  for (int64_t b = 0; b < of.samples; ++b) {
    AttentionSettings alone = settings;
    alone.keys = {settings.keys[static_cast<size_t>(b)]};
    EXPECT_TRUE(same_bits(attention(qkv.narrow(1, b, 1), alone), whole.narrow(1, b, 1)));
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, AttentionOf, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

TEST(Attention, LaterTokensChangeNoEarlierResult) {
  const Case of{"later", 1, 1, 130, 2, 2, 8};
  const at::Tensor qkv = values(1, {1, 130, 48});
  at::Tensor other = qkv.clone();
  other.narrow(1, 100, 30).fill_(1e4F);
  EXPECT_TRUE(same_bits(attention(qkv, settings_of(of)).narrow(1, 0, 100),
                        attention(other, settings_of(of)).narrow(1, 0, 100)));
}

TEST(Attention, OfNothingIsNothing) {
  const Case of{"none", 1, 0, 5, 2, 2, 8};
  const at::Tensor qkv = leaf(values(1, {0, 5, 48}));
  const at::Tensor out = attention(qkv, settings_of(of));
  EXPECT_EQ(out.sizes(), (std::vector<int64_t>{0, 5, 16}));
  out.backward(at::zeros_like(out));
  EXPECT_EQ(qkv.grad().numel(), 0);
}

}  // namespace
}  // namespace lockstep::fused
