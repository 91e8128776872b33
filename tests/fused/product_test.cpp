// Operands, products and results in each compute type.
#include "lockstep/fused/product.h"

#include "lockstep/kernels/gemm.h"
#include "lockstep/torch_inside/first_touch.h"
#include "lockstep/torch_inside/gemm_counter.h"
#include "tests/fused/twin.h"

namespace lockstep::fused {
namespace {

using plan::ComputeType;

Arithmetic fused_in(ComputeType compute) { return {.fused = true, .compute = compute}; }

at::Tensor half(const at::Tensor& x) { return x.to(at::kHalf).to(at::kFloat); }

TEST(Product, OperandsAreRoundedToTheComputeType) {
  const at::Tensor x = values(1, {7, 5}).t();  // not contiguous
  EXPECT_TRUE(same_bits(operand(fused_in(ComputeType::fp32), x), x.contiguous()));
  EXPECT_TRUE(torch::equal(operand(fused_in(ComputeType::bf16), x), x.to(at::kBFloat16)));
  EXPECT_TRUE(same_bits(operand(fused_in(ComputeType::fp16), x), half(x)));
}

// The three products of a linear layer, with the count of their operations.
TEST(Product, AreThoseOfOperands) {
  const int64_t R = 9, K = 33, N = 17;
  for (const ComputeType compute : {ComputeType::fp32, ComputeType::bf16, ComputeType::fp16}) {
    if (compute == ComputeType::bf16 && !kernels::has_bf16_products()) continue;
    SCOPED_TRACE(std::string(plan::name_of(compute)));
    const Arithmetic arithmetic = fused_in(compute);
    const at::Tensor x = operand(arithmetic, values(1, {R, K}));
    const at::Tensor w = operand(arithmetic, values(2, {N, K}));
    const at::Tensor dy = operand(arithmetic, values(3, {R, N})), bias = values(4, {N});
    const auto expect = [&](const at::Tensor& got, const at::Tensor& a, const at::Tensor& b,
                            const at::Tensor& added) {
      const at::Tensor exact = at::matmul(a.to(at::kDouble), b.to(at::kDouble)) + added;
      const at::Tensor size =
          at::matmul(a.abs().to(at::kDouble), b.abs().to(at::kDouble)) + added.abs();
      // Of each sum; a result in half precision is rounded once more.
      at::Tensor bound = size * (static_cast<double>(a.size(1) + 3) * kRound);
      if (compute == ComputeType::fp16) bound = bound + exact.abs() * 0x1p-11;
      expect_within(got, exact, bound);
      if (compute != ComputeType::fp16) return;
      EXPECT_TRUE(same_bits(got, half(got)));
    };
    const int64_t before = torch_inside::gemm_flops_of_this_thread();
    const at::Tensor none = torch::zeros({1}, at::kDouble);
    expect(outputs(arithmetic, x, w, bias), x, w.t(), bias.to(at::kDouble));
    expect(input_gradient(arithmetic, dy, w), dy, w, none);
    expect(weight_gradient(arithmetic, dy, x), dy.t(), x, none);
    EXPECT_EQ(torch_inside::gemm_flops_of_this_thread() - before, 3 * 2 * R * K * N);
  }
}

TEST(Product, HalfPrecisionOverflowsAndUnderflows) {
  const Arithmetic arithmetic = fused_in(ComputeType::fp16);
  const at::Tensor big = at::full({1, 4}, 300.0F), small = at::full({1, 4}, 1e-4F);
  EXPECT_TRUE(outputs(arithmetic, big, big, {}).isinf().all().item<bool>()) << "360,000";
  EXPECT_EQ(outputs(arithmetic, small, small, {}).item<float>(),
            half(at::full({1}, 4e-8F)).item<float>());
  EXPECT_EQ(operand(arithmetic, at::full({1}, 2e-8F)).item<float>(), 0) << "below half a step";
  EXPECT_FLOAT_EQ(operand(arithmetic, at::full({1}, 1024 * 2e-8F)).item<float>(), 2.0503998e-05F);
}

TEST(Product, BiasGradientsSumRowsInOrder) {
  const at::Tensor dy = values(3, {70, 19});
  at::Tensor expected = torch::zeros({19});
  for (int64_t row = 0; row < 70; ++row) expected = expected + dy[row];
  EXPECT_TRUE(same_bits(bias_gradient(fused_in(ComputeType::fp32), dy), expected));
  EXPECT_TRUE(same_bits(bias_gradient(fused_in(ComputeType::fp32), torch::empty({0, 19})),
                        torch::zeros({19})));
}

// A released parameter is brought before a kernel reads its memory.
TEST(Product, ReleasedParametersAreTouched) {
  int touches = 0;
  std::unique_ptr<torch_inside::ReleasableStorage> storage;
  storage = std::make_unique<torch_inside::ReleasableStorage>(12, [&] {
    ++touches;
    storage->allocate();
    storage->flat().fill_(1);
  });
  const at::Tensor w = storage->watched({3, 4}, 0);
  const at::Tensor y = outputs(fused_in(ComputeType::fp32), at::ones({2, 4}),
                               operand(fused_in(ComputeType::fp32), w), {});
  EXPECT_GT(touches, 0);
  EXPECT_TRUE(y.eq(4).all().item<bool>());
}

}  // namespace
}  // namespace lockstep::fused
