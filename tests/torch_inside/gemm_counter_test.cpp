// Counts by LibTorch's operators against 2 m n k of each product that must happen.
#include "lockstep/torch_inside/gemm_counter.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <thread>

namespace lockstep::torch_inside {
namespace {

class GemmCounter : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    install_gemm_counter();
    install_gemm_counter();  // counted once all the same
  }

  static int64_t flops_of(const std::function<void()>& work) {
    const int64_t before = gemm_flops_of_this_thread();
    work();
    return gemm_flops_of_this_thread() - before;
  }
};

constexpr int64_t kB = 2, kM = 5, kK = 7, kN = 11;

TEST_F(GemmCounter, ProductsForward) {
  const at::Tensor a = torch::rand({kM, kK}), b = torch::rand({kK, kN});
  const at::Tensor c = torch::rand({kN}), d = torch::rand({kB, kM, kK});
  const at::Tensor e = torch::rand({kB, kK, kN}), f = torch::rand({kB, kM, kN});
  const int64_t one = 2 * kM * kN * kK;
  EXPECT_EQ(flops_of([&] { at::mm(a, b); }), one);
  EXPECT_EQ(flops_of([&] { at::addmm(c, a, b); }), one);
  EXPECT_EQ(flops_of([&] { at::matmul(a, b); }), one);
  EXPECT_EQ(flops_of([&] { at::bmm(d, e); }), kB * one);
  EXPECT_EQ(flops_of([&] { at::baddbmm(f, d, e); }), kB * one);
  EXPECT_EQ(flops_of([&] { at::matmul(d, b); }), kB * one);
  EXPECT_EQ(flops_of([&] { at::matmul(d, e); }), kB * one);
  EXPECT_EQ(flops_of([&] { at::linear(d, b.t(), c); }), kB * one);
  EXPECT_EQ(flops_of([&] { at::linear(d, b.t()); }), kB * one);
  EXPECT_EQ(flops_of([&] { (a + a).tanh().sum(); }), 0);
}

TEST_F(GemmCounter, LargeProductsToo) {
  const at::Tensor a = torch::rand({3, 64, 80}), b = torch::rand({3, 80, 96});
  EXPECT_EQ(flops_of([&] { at::bmm(a, b); }), 2 * 3 * 64 * 80 * 96);
  EXPECT_EQ(flops_of([&] { at::mm(a[0], b[0]); }), 2 * 64 * 80 * 96);
}

TEST_F(GemmCounter, LinearIsThreeProductsWithBackward) {
  for (const bool with_bias : {true, false}) {
    for (const bool contiguous : {true, false}) {
      at::Tensor x = torch::rand({kB, kM, kK});
      if (!contiguous) x = torch::rand({kM, kB, kK}).transpose(0, 1);
      x.requires_grad_();
      const at::Tensor weight = torch::rand({kN, kK}).requires_grad_();
      const at::Tensor bias = with_bias ? torch::rand({kN}).requires_grad_() : at::Tensor();
      EXPECT_EQ(flops_of([&] { at::linear(x, weight, bias).sum().backward(); }),
                3 * 2 * kB * kM * kN * kK)
          << "bias " << with_bias << ", contiguous " << contiguous;
    }
  }
}

TEST_F(GemmCounter, LinearOfDataIsTwoProductsWithBackward) {
  const at::Tensor x = torch::rand({kB, kM, kK});
  const at::Tensor weight = torch::rand({kN, kK}).requires_grad_();
  EXPECT_EQ(flops_of([&] { at::linear(x, weight).sum().backward(); }), 2 * 2 * kB * kM * kN * kK);
}

TEST_F(GemmCounter, BatchedProductsAreThreeWithBackward) {
  const at::Tensor a = torch::rand({kB, kM, kK}).requires_grad_();
  const at::Tensor b = torch::rand({kB, kK, kN}).requires_grad_();
  const at::Tensor mask = torch::rand({kM, kN});
  const int64_t one = 2 * kB * kM * kN * kK;
  EXPECT_EQ(flops_of([&] { at::bmm(a, b).sum().backward(); }), 3 * one);
  EXPECT_EQ(flops_of([&] { at::baddbmm(mask, a, b, 1, 0.5).sum().backward(); }), 3 * one);
}

TEST_F(GemmCounter, EachThreadHasItsOwnCount) {
  const at::Tensor a = torch::rand({kM, kK}), b = torch::rand({kK, kN});
  int64_t elsewhere = 0;
  const int64_t here = flops_of([&] {
    std::thread other([&] { elsewhere = flops_of([&] { at::mm(a, b); }); });
    other.join();
  });
  EXPECT_EQ(here, 0);
  EXPECT_EQ(elsewhere, 2 * kM * kN * kK);
}

}  // namespace
}  // namespace lockstep::torch_inside
