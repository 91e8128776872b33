#include "lockstep/models/dropout.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/models/model_fixture.h"

namespace lockstep::models {
namespace {

at::Tensor mask(int64_t first_sample, int64_t samples, int64_t of_sample, int64_t step = 0,
                const char* layer = "h.0.attn", const char* purpose = "residual", double p = 0.4) {
  return dropout(torch::ones({samples, of_sample}), samples, p, context_of(step, first_sample),
                 layer, purpose);
}

TEST(Dropout, SampleHasItsMaskInAnyMicroBatch) {
  // Odd lengths, and longer than the block of the kernel.
  for (const int64_t of_sample : {1, 3, 255, 257, 1031}) {
    const at::Tensor alone = mask(5, 1, of_sample);
    EXPECT_TRUE(torch::equal(mask(4, 4, of_sample)[1], alone[0]));
    EXPECT_TRUE(torch::equal(mask(5, 2, of_sample)[0], alone[0]));
    EXPECT_TRUE(torch::equal(mask(0, 8, of_sample)[5], alone[0]));
  }
}

TEST(Dropout, AnythingElseChangesTheMask) {
  const at::Tensor reference = mask(5, 1, 200);
  EXPECT_FALSE(torch::equal(mask(6, 1, 200), reference));
  EXPECT_FALSE(torch::equal(mask(5, 1, 200, 1), reference));
  EXPECT_FALSE(torch::equal(mask(5, 1, 200, 0, "h.1.attn"), reference));
  EXPECT_FALSE(torch::equal(mask(5, 1, 200, 0, "h.0.attn", "probabilities"), reference));
  // The same draws: what a smaller share drops, a larger one drops too.
  const at::Tensor more = mask(5, 1, 200, 0, "h.0.attn", "residual", 0.6);
  EXPECT_TRUE((more.gt(0).logical_not() | reference.gt(0)).all().item<bool>());
  EXPECT_FALSE(torch::equal(more.gt(0), reference.gt(0)));
}

TEST(Dropout, ShapeOfTheSampleDoesNotMatter) {
  const RankContext context = context_of(2, 3);
  const at::Tensor flat = dropout(torch::ones({2, 60}), 2, 0.5, context, "layer", "purpose");
  const at::Tensor heads = dropout(torch::ones({2 * 3, 4, 5}), 2, 0.5, context, "layer", "purpose");
  EXPECT_TRUE(torch::equal(flat, heads.view({2, 60})));
}

TEST(Dropout, GradientHasTheSameMask) {
  const at::Tensor x = torch::linspace(1, 2, 90).view({3, 30}).requires_grad_();
  const at::Tensor y = dropout(x, 3, 0.25, context_of(), "layer", "purpose");
  y.sum().backward();
  EXPECT_TRUE(torch::equal(x.grad() * x, y));
  EXPECT_TRUE((y.eq(0) | y.eq(x * (1 / 0.75f))).all().item<bool>());
}

TEST(Dropout, OffItIsTheTensorItself) {
  const at::Tensor x = torch::ones({2, 3});
  EXPECT_TRUE(dropout(x, 2, 0, context_of(), "layer", "purpose").is_same(x));
  EXPECT_TRUE(dropout(x, 2, 0.9, context_of(0, 0, false), "layer", "purpose").is_same(x));
}

}  // namespace
}  // namespace lockstep::models
