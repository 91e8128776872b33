#include "lockstep/models/mlp.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/models/decoder.h"
#include "lockstep/torch_inside/gemm_counter.h"
#include "tests/models/model_fixture.h"

namespace lockstep::models {
namespace {

const MlpSettings kOdd{.vocab = 11, .layers = 3, .width = 5, .ffn = 13};

// One token at a time, in fp64.
at::Tensor exact_logits(const Mlp& model, const at::Tensor& ids) {
  std::vector<at::Tensor> rows;
  const auto weight = [&](const std::string& name) {
    return model.named_parameters()[name].detach().to(at::kDouble);
  };
  for (int64_t b = 0; b < ids.size(0); ++b) {
    for (int64_t t = 0; t < ids.size(1); ++t) {
      std::vector<at::Tensor> window;
      for (int64_t at = t - 7; at <= t; ++at) {
        window.push_back(at < 0 ? torch::zeros({kOdd.width}, at::kDouble)
                                : weight("wte.weight")[ids[b][at].item<int64_t>()]);
      }
      at::Tensor x = torch::cat(window);
      for (int64_t layer = 0; layer < kOdd.layers; ++layer) {
        const std::string fc = "fc." + std::to_string(layer);
        x = (weight(fc + ".weight").mv(x) + weight(fc + ".bias")).tanh();
      }
      rows.push_back(weight("lm_head.weight").mv(x));
    }
  }
  return torch::stack(rows).view({ids.size(0), ids.size(1), kOdd.vocab});
}

TEST(Mlp, LogitsOfAPlainImplementation) {
  Mlp model(kOdd);
  fill(model, 3);
  for (const int64_t length : {1, 7, 8, 9, 20}) {
    const at::Tensor ids = tokens(1, 3, length, kOdd.vocab);
    const at::Tensor logits = model.logits(ids, context_of());
    // Sums of up to 40 products in fp32 through four layers: a few dozen roundings of 2^-24.
    EXPECT_LT(relative_error(logits, exact_logits(model, ids)), 5e-6) << length;
  }
}

TEST(Mlp, SeesEightTokensAndNoLaterOne) {
  Mlp model(kOdd);
  fill(model, 3);
  constexpr int64_t kLength = 12;
  const at::Tensor ids = tokens(1, 1, kLength, kOdd.vocab);
  const at::Tensor logits = model.logits(ids, context_of());
  for (int64_t changed = 0; changed < kLength; ++changed) {
    at::Tensor other = ids.clone();
    other[0][changed] = (ids[0][changed].item<int64_t>() + 1) % kOdd.vocab;
    const at::Tensor got = model.logits(other, context_of());
    for (int64_t t = 0; t < kLength; ++t) {
      const bool seen = t >= changed && t < changed + Mlp::kWindow;
      EXPECT_EQ(!torch::equal(got[0][t], logits[0][t]), seen) << changed << " at " << t;
    }
  }
}

TEST(Mlp, ParametersInTheOrderOfUse) {
  Mlp model(kOdd);
  EXPECT_EQ(model.named_parameters().keys(),
            (std::vector<std::string>{"wte.weight", "fc.0.weight", "fc.0.bias", "fc.1.weight",
                                      "fc.1.bias", "fc.2.weight", "fc.2.bias", "lm_head.weight"}));
  EXPECT_TRUE(model.ties().empty());
  EXPECT_EQ(model.init_of("fc.1.bias").kind, plan::Init::Kind::zeros);
  EXPECT_EQ(model.init_of("fc.1.weight"),
            (plan::Init{.kind = plan::Init::Kind::normal, .std = 0.02}));
}

TEST(Mlp, ProductsAreThoseOfTheCount) {
  torch_inside::install_gemm_counter();
  MlpSettings settings = kOdd;
  settings.bias = false;
  Mlp model(settings);
  fill(model, 3);
  const at::Tensor ids = tokens(1, 2, 9, settings.vocab);
  const int64_t before = torch_inside::gemm_flops_of_this_thread();
  model.token_losses(ids, ids, context_of()).sum().backward();
  EXPECT_EQ(static_cast<double>(torch_inside::gemm_flops_of_this_thread() - before),
            static_cast<double>(ids.numel()) * model.flops_per_token());
}

TEST(Mlp, DropsInTrainingOnly) {
  MlpSettings settings = kOdd;
  settings.dropout = 0.5;
  Mlp model(settings);
  Mlp plain(kOdd);
  fill(model, 3);
  fill(plain, 3);
  const at::Tensor ids = tokens(1, 2, 9, kOdd.vocab);
  const at::Tensor expected = plain.logits(ids, context_of());
  EXPECT_TRUE(torch::equal(model.logits(ids, context_of(0, 0, false)), expected));
  EXPECT_FALSE(torch::equal(model.logits(ids, context_of()), expected));
  EXPECT_TRUE(torch::equal(model.logits(ids, context_of(1)), model.logits(ids, context_of(1))));
}

TEST(MakeModel, ChoosesTheFamily) {
  plan::TrainConfig config;
  EXPECT_NE(std::dynamic_pointer_cast<Decoder>(make_model(config, 256)), nullptr);
  config.model.family = "mlp";
  try {
    make_model(config, 256);
    FAIL() << "a tied head was accepted";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("set model.tied = false"), std::string::npos);
  }
  config.model.tied = false;
  const auto mlp = make_model(config, 256);
  ASSERT_NE(std::dynamic_pointer_cast<Mlp>(mlp), nullptr);
  const auto parameters = mlp->named_parameters();
  EXPECT_EQ(parameters["fc.0.weight"].sizes(), (std::vector<int64_t>{512, 8 * 128}));
  config.model.family = "gpt3";
  try {
    make_model(config, 256);
    FAIL() << "an unknown family was accepted";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("gpt2, llama and mlp"), std::string::npos);
  }
}

TEST(Mlp, RefusesBadSettingsByName) {
  MlpSettings settings = kOdd;
  settings.ffn = 0;
  try {
    Mlp model(settings);
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("model.ffn is 0"), std::string::npos) << error.what();
  }
  settings = kOdd;
  settings.dropout = -0.5;
  EXPECT_THROW(Mlp{settings}, UsageError);
}

}  // namespace
}  // namespace lockstep::models
