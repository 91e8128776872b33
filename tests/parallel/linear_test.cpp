// Column- and row-parallel linear maps: one result on every layout, and the plain formula's.
#include "lockstep/parallel/tensor/linear.h"

#include <torch/csrc/autograd/autograd.h>

#include "lockstep/parallel/tensor/column_linear.h"
#include "lockstep/parallel/tensor/row_linear.h"
#include "tests/parallel/grains.h"

namespace lockstep::parallel {
namespace {

constexpr int64_t kBatch = 2, kSlice = 3, kWidth = 7, kInner = 5;  // of a grain

struct Column {
  explicit Column(const TensorGroup& group, const ColumnOptions& options = {}, bool bias = true)
      : x(leaf(own_slices(group, values(1, {kGrains, kBatch, kSlice, kWidth})))),
        weights(own_leaves(group, grain_values(2, {kInner, kWidth}))) {
    if (bias) biases = own_leaves(group, grain_values(3, {kInner}));
    outputs = column_linear(group, x, weights, biases, options);
    const auto all = grain_values(4, outputs[0].sizes());
    torch::autograd::backward(
        outputs, {all.begin() + group.place.local.lo, all.begin() + group.place.local.hi});
  }
  at::Tensor x;
  std::vector<at::Tensor> weights, biases, outputs;
};

void expect_same(const TensorGroup& group, const Column& got, const Column& expected) {
  expect_own_bits(group, got.outputs, expected.outputs, "output");
  expect_own_bits(group, gradients_of(got.weights), gradients_of(expected.weights), "weight");
  expect_own_bits(group, gradients_of(got.biases), gradients_of(expected.biases), "bias");
  EXPECT_TRUE(same_bits(got.x.grad(), own_slices(group, expected.x.grad()))) << "input";
}

TEST(ColumnLinear, OneResultOnEveryLayout) {
  const Column expected(alone());
  on_layouts([&](const TensorGroup& group) {
    expect_same(group, Column(group), expected);
    expect_same(group, Column(group, {.gather_again = true}), expected);
  });
}

TEST(ColumnLinear, IsThePlainFormula) {
  const TensorGroup group = alone();
  for (const bool bias : {true, false}) {
    const Column got(group, {}, bias);
    const at::Tensor x = got.x.detach().to(at::kDouble).requires_grad_();
    const at::Tensor w = at::cat(got.weights).detach().to(at::kDouble).requires_grad_();
    at::Tensor b;
    if (bias) b = at::cat(got.biases).detach().to(at::kDouble).requires_grad_();
    const at::Tensor y = at::linear(x, w, b);
    const at::Tensor dy = at::cat(grain_values(4, got.outputs[0].sizes()), -1).to(at::kDouble);
    y.backward(dy);

    const at::Tensor offset = bias ? b.abs() : at::zeros({kGrains * kInner}, at::kDouble);
    EXPECT_LE(share_of_bound(at::cat(got.outputs, -1), y.detach(),
                             sum_bound(at::linear(x.abs(), w.abs(), offset).detach(), kWidth)),
              1);
    EXPECT_LE(share_of_bound(got.x.grad(), x.grad(),
                             sum_bound(at::matmul(dy.abs(), w.abs()).detach(), kGrains * kInner)),
              1);
    const at::Tensor dy_rows = dy.flatten(0, 2), x_rows = x.detach().flatten(0, 2);
    EXPECT_LE(share_of_bound(at::cat(gradients_of(got.weights)), w.grad(),
                             sum_bound(at::mm(dy_rows.abs().t(), x_rows.abs()), x_rows.size(0))),
              1);
    if (bias) {
      EXPECT_LE(share_of_bound(at::cat(gradients_of(got.biases)), b.grad(),
                               sum_bound(dy_rows.abs().sum(0), dy_rows.size(0))),
                1);
    }
  }
}

TEST(ColumnLinear, AnotherOrderOfGrainsWouldShow) {
  const TensorGroup group = alone();
  const Column expected(group);
  const auto dy = grain_values(4, expected.outputs[0].sizes());
  at::Tensor in_rank_order = at::matmul(dy[0], expected.weights[0].detach());
  for (int t = 1; t < kGrains; ++t) {
    in_rank_order = in_rank_order + at::matmul(dy[t], expected.weights[t].detach());
  }
  EXPECT_FALSE(same_bits(in_rank_order, expected.x.grad())) << "the test would be blind";
}

struct Row {
  explicit Row(const TensorGroup& group, bool with_bias = true)
      : inputs(own_leaves(group, grain_values(5, {kGrains, kBatch, kSlice, kInner}))),
        weights(own_leaves(group, grain_values(6, {kWidth, kInner}))) {
    if (with_bias) bias = leaf(values(7, {kWidth}));
    output = row_linear(group, inputs, weights, bias);
    output.backward(own_slices(group, values(8, {kGrains, kBatch, kSlice, kWidth})));
  }
  std::vector<at::Tensor> inputs, weights;
  at::Tensor bias, output;
};

TEST(RowLinear, OneResultOnEveryLayout) {
  const Row expected(alone());
  on_layouts([&](const TensorGroup& group) {
    const Row got(group);
    EXPECT_TRUE(same_bits(got.output, own_slices(group, expected.output))) << "output";
    expect_own_bits(group, gradients_of(got.inputs), gradients_of(expected.inputs), "input");
    expect_own_bits(group, gradients_of(got.weights), gradients_of(expected.weights), "weight");
    EXPECT_TRUE(same_bits(got.bias.grad(), expected.bias.grad())) << "bias";
  });
}

TEST(RowLinear, IsThePlainFormula) {
  for (const bool bias : {true, false}) {
    const Row got(alone(), bias);
    const at::Tensor h = at::cat(got.inputs, -1).detach().to(at::kDouble).requires_grad_();
    const at::Tensor w = at::cat(got.weights, 1).detach().to(at::kDouble).requires_grad_();
    at::Tensor b;
    if (bias) b = got.bias.detach().to(at::kDouble).requires_grad_();
    const at::Tensor z = at::linear(h, w, b);
    const at::Tensor dz = values(8, z.sizes()).to(at::kDouble);
    z.backward(dz);

    const at::Tensor offset = bias ? b.abs() : at::zeros({kWidth}, at::kDouble);
    EXPECT_LE(
        share_of_bound(got.output, z.detach(),
                       sum_bound(at::linear(h.abs(), w.abs(), offset).detach(), kGrains * kInner)),
        1);
    EXPECT_LE(share_of_bound(at::cat(gradients_of(got.inputs), -1), h.grad(),
                             sum_bound(at::matmul(dz.abs(), w.abs()).detach(), kWidth)),
              1);
    const at::Tensor dz_rows = dz.flatten(0, 2), h_rows = h.detach().flatten(0, 2);
    EXPECT_LE(share_of_bound(at::cat(gradients_of(got.weights), 1), w.grad(),
                             sum_bound(at::mm(dz_rows.abs().t(), h_rows.abs()), h_rows.size(0))),
              1);
    if (bias) {
      EXPECT_LE(share_of_bound(got.bias.grad(), b.grad(),
                               sum_bound(dz_rows.abs().sum(0), dz_rows.size(0))),
                1);
    }
  }
}

TEST(RowLinear, AnotherOrderOfGrainsOrSlicesWouldShow) {
  const Row expected(alone());
  at::Tensor in_rank_order;
  for (int t = 0; t < kGrains; ++t) {
    const at::Tensor part = at::matmul(expected.inputs[t], expected.weights[t].t()).detach();
    in_rank_order = t == 0 ? part : in_rank_order + part;
  }
  EXPECT_FALSE(same_bits(in_rank_order + expected.bias.detach(), expected.output.detach()));
  const at::Tensor dz = values(8, {kGrains, kBatch, kSlice, kWidth});
  EXPECT_FALSE(same_bits(dz.flatten(0, 2).sum(0), expected.bias.grad()));
}

/// Runs the entries and puts their results where backward would have put them.
void empty_into_gradients(WeightQueue& queue) {
  for (DeferredGradient& entry : queue.entries) {
    EXPECT_FALSE(entry.weight.grad().defined()) << "computed in backward too";
    entry.weight.mutable_grad() = entry.compute();
  }
  queue.entries.clear();
}

TEST(WeightQueue, GradientsLeftForLaterHaveTheBitsOfBackwards) {
  const Column column(alone());
  const Row row(alone());
  on_layouts([&](const TensorGroup& immediate) {
    TensorGroup group = immediate;
    group.weight_queue = std::make_shared<WeightQueue>();
    const Column got(group);
    EXPECT_EQ(static_cast<int>(group.weight_queue->entries.size()), 2 * group.local());
    empty_into_gradients(*group.weight_queue);
    expect_same(group, got, column);

    const Row got_row(group);
    EXPECT_EQ(static_cast<int>(group.weight_queue->entries.size()), group.local() + 1);
    empty_into_gradients(*group.weight_queue);
    expect_own_bits(group, gradients_of(got_row.inputs), gradients_of(row.inputs), "input");
    expect_own_bits(group, gradients_of(got_row.weights), gradients_of(row.weights), "weight");
    EXPECT_TRUE(same_bits(got_row.bias.grad(), row.bias.grad()));
  });
}

TEST(WeightQueue, AnInputWithoutGradientLeavesNothing) {
  TensorGroup group = alone();
  group.weight_queue = std::make_shared<WeightQueue>();
  const at::Tensor x = values(1, {kGrains, kBatch, kSlice, kWidth});
  const auto weights = own_leaves(group, grain_values(2, {kInner, kWidth}));
  column_linear(group, x, weights, {})[0].sum().backward();
  EXPECT_TRUE(group.weight_queue->entries.empty()) << "backward would not come by";
  EXPECT_TRUE(weights[0].grad().defined());
}

struct Shape {
  std::vector<int64_t> x;
  int64_t out;
};

TEST(DeferredLinear, HasTheBitsOfLinearAndItsBackward) {
  const std::vector<Shape> shapes = {{{4, 128, 64}, 192}, {{2, 3, 7}, 5},    {{1, 1, 1}, 1},
                                     {{3, 5, 1}, 4},      {{3, 5, 9}, 1},    {{1, 17, 33}, 65},
                                     {{5, 1, 130}, 77},   {{6, 11}, 13},     {{1, 8}, 3},
                                     {{2, 2, 3, 5}, 6},   {{2, 256, 48}, 31}};
  for (const Shape& shape : shapes) {
    for (const bool with_bias : {true, false}) {
      SCOPED_TRACE(
          base::str("x ", at::IntArrayRef(shape.x), " to ", shape.out, with_bias ? ", bias" : ""));
      const at::Tensor x = leaf(values(1, shape.x)), x2 = leaf(x);
      const at::Tensor w = leaf(values(2, {shape.out, shape.x.back()})), w2 = leaf(w);
      at::Tensor b, b2;
      if (with_bias) {
        b = leaf(values(3, {shape.out}));
        b2 = leaf(b);
      }
      const at::Tensor expected = at::linear(x, w, b);
      const at::Tensor dy = values(4, expected.sizes());
      expected.backward(dy);

      TensorGroup group;
      group.weight_queue = std::make_shared<WeightQueue>();
      const at::Tensor got = linear(group, x2, w2, b2);
      got.backward(dy);
      EXPECT_TRUE(same_bits(got, expected));
      EXPECT_TRUE(same_bits(x2.grad(), x.grad()));
      ASSERT_EQ(group.weight_queue->entries.size(), with_bias ? 2u : 1u);
      empty_into_gradients(*group.weight_queue);
      EXPECT_TRUE(same_bits(w2.grad(), w.grad()));
      if (with_bias) {
        EXPECT_TRUE(same_bits(b2.grad(), b.grad()));
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::parallel
