#include "lockstep/train/generation.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

/// Token t is followed by t + 1, for certain; with a flat tail for the rest.
struct Counter : models::LanguageModel {
  at::Tensor logits(const at::Tensor& ids, const RankContext&) override {
    at::Tensor out = at::zeros({ids.size(0), ids.size(1), 10});
    for (int64_t s = 0; s < ids.size(1); ++s) {
      out[0][s][(ids[0][s].item<int64_t>() + 1) % 10] = 20.0;
    }
    longest = std::max(longest, ids.size(1));
    return out;
  }
  plan::Init init_of(const std::string&) const override { return {}; }
  double flops_per_token() const override { return 0; }
  int64_t longest = 0;
};

TEST(Generation, FollowsTheModelAndKeepsToItsContext) {
  Counter model;
  const auto made = generate(model, {7}, {.tokens = 6, .temperature = 0, .context = 4});
  EXPECT_EQ(made, (std::vector<int64_t>{8, 9, 0, 1, 2, 3}));
  EXPECT_EQ(model.longest, 4);
}

TEST(Generation, OneSeedOneText) {
  Counter model;
  const GenerationOptions hot = {.tokens = 30, .temperature = 30, .seed = 5, .context = 4};
  GenerationOptions other = hot;
  other.seed = 6;
  EXPECT_EQ(generate(model, {1}, hot), generate(model, {1}, hot));
  EXPECT_NE(generate(model, {1}, hot), generate(model, {1}, other));
}

TEST(Generation, TopOneIsTheMostLikely) {
  Counter model;
  EXPECT_EQ(generate(model, {1}, {.tokens = 3, .temperature = 50, .top_k = 1, .context = 4}),
            (std::vector<int64_t>{2, 3, 4}));
}

TEST(Generation, RefusesAnEmptyPrompt) {
  Counter model;
  EXPECT_THROW(generate(model, {}, {.context = 4}), UsageError);
}

}  // namespace
}  // namespace lockstep
