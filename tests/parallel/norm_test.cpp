// Layer norm and RMS norm over token slices.
#include "lockstep/parallel/tensor/slice_norm.h"
#include "tests/parallel/grains.h"

namespace lockstep::parallel {
namespace {

constexpr double kEps = 1e-5;

enum class Kind { layer, layer_without_bias, rms };
constexpr Kind kKinds[] = {Kind::layer, Kind::layer_without_bias, Kind::rms};

struct Norm {
  Norm(const TensorGroup& group, Kind kind, int64_t width)
      : shape{group.grains(), 2, 3, width},
        x(leaf(own_slices(group, values(1, shape)))),
        gain(leaf(values(2, {width}))) {
    if (kind == Kind::layer) bias = leaf(values(3, {width}));
    output =
        kind == Kind::rms ? rms_norm(group, x, gain, kEps) : layer_norm(group, x, gain, bias, kEps);
    output.backward(own_slices(group, values(4, shape)));
  }
  std::vector<int64_t> shape;
  at::Tensor x, gain, bias, output;
};

TEST(SliceNorm, OneResultOnEveryLayout) {
  for (const Kind kind : kKinds) {
    for (const int64_t width : {7, 33}) {
      const Norm expected(alone(), kind, width);
      on_layouts([&](const TensorGroup& group) {
        const Norm got(group, kind, width);
        EXPECT_TRUE(same_bits(got.output, own_slices(group, expected.output)));
        EXPECT_TRUE(same_bits(got.x.grad(), own_slices(group, expected.x.grad())));
        EXPECT_TRUE(same_bits(got.gain.grad(), expected.gain.grad())) << "gain";
        if (kind == Kind::layer) {
          EXPECT_TRUE(same_bits(got.bias.grad(), expected.bias.grad())) << "bias";
        }
      });
    }
  }
}

TEST(SliceNorm, IsThePlainFormula) {
  for (const Kind kind : kKinds) {
    const int64_t width = 33;
    const Norm got(alone(), kind, width);
    const at::Tensor x = leaf(got.x.to(at::kDouble)), gain = leaf(got.gain.to(at::kDouble));
    at::Tensor bias, y;
    if (kind == Kind::rms) {
      y = x / (x * x).mean(-1, true).add(kEps).sqrt() * gain;
    } else {
      if (kind == Kind::layer) bias = leaf(got.bias.to(at::kDouble));
      y = at::layer_norm(x, {width}, gain, bias, kEps);
    }
    const at::Tensor dy = values(4, got.shape).to(at::kDouble);
    y.backward(dy);
    // A row's sums have width terms; the result is of the size of the largest row value, and the
    // input's gradient of that times 1/deviation, at most sqrt(width) / the largest deviation.
    const double unit = (3 * width + 16) * 0x1p-24;
    const double size = y.abs().max().item<double>();
    EXPECT_LE(share_of_bound(got.output, y.detach(), at::full({1}, unit * size, at::kDouble)), 1);
    const double input = x.grad().abs().max().item<double>() + dy.abs().max().item<double>();
    EXPECT_LE(share_of_bound(got.x.grad(), x.grad(),
                             at::full({1}, unit * input * std::sqrt(width), at::kDouble)),
              1);
    const at::Tensor rows = dy.abs().flatten(0, 2).sum(0) * std::sqrt(width);
    EXPECT_LE(share_of_bound(got.gain.grad(), gain.grad(), rows * (unit + 26 * 0x1p-24)), 1);
    if (bias.defined()) {
      EXPECT_LE(share_of_bound(got.bias.grad(), bias.grad(), rows * (26 * 0x1p-24)), 1);
    }
  }
}

TEST(SliceNorm, OfOneGrainHasTheBitsOfLayerNorm) {
  for (const bool with_bias : {true, false}) {
    const at::Tensor x = leaf(values(1, {3, 5, 31})), x2 = leaf(x);
    const at::Tensor gain = leaf(values(2, {31})), gain2 = leaf(gain);
    at::Tensor bias, bias2;
    if (with_bias) {
      bias = leaf(values(3, {31}));
      bias2 = leaf(bias);
    }
    const at::Tensor y = at::layer_norm(x, {31}, gain, bias, kEps);
    const at::Tensor y2 = layer_norm(TensorGroup{}, x2, gain2, bias2, kEps);
    y.backward(values(4, y.sizes()));
    y2.backward(values(4, y.sizes()));
    EXPECT_TRUE(same_bits(y, y2));
    EXPECT_TRUE(same_bits(x.grad(), x2.grad()));
    EXPECT_TRUE(same_bits(gain.grad(), gain2.grad()));
    if (with_bias) {
      EXPECT_TRUE(same_bits(bias.grad(), bias2.grad()));
    }
  }
}

TEST(SliceNorm, OneSumOverAllTokensWouldShow) {
  const Norm got(alone(), Kind::layer, 33);
  EXPECT_FALSE(same_bits(values(4, got.shape).flatten(0, 2).sum(0), got.bias.grad()));
}

}  // namespace
}  // namespace lockstep::parallel
