#include "lockstep/models/decoder.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/torch_inside/gemm_counter.h"
#include "tests/models/model_fixture.h"

namespace lockstep::models {
namespace {

using Weights = std::map<std::string, at::Tensor>;

// Nothing divides anything it need not.
const DecoderSettings kOdd{
    .vocab = 11, .layers = 2, .heads = 3, .width = 15, .ffn = 23, .context = 7, .norm_eps = 1e-3};

Weights exact_weights(const LanguageModel& model) {
  Weights weights;
  for (const auto& item : model.named_parameters()) {
    weights[item.key()] = item.value().detach().to(at::kDouble).requires_grad_();
  }
  return weights;
}

at::Tensor norm(const Weights& w, const std::string& path, const at::Tensor& x, double eps) {
  const at::Tensor centred = x - x.mean(-1, true);
  const at::Tensor unit = centred / (centred.pow(2).mean(-1, true) + eps).sqrt();
  const at::Tensor scaled = unit * w.at(path + ".weight");
  return w.count(path + ".bias") != 0 ? scaled + w.at(path + ".bias") : scaled;
}

at::Tensor linear(const Weights& w, const std::string& path, const at::Tensor& x) {
  const at::Tensor product = x.matmul(w.at(path + ".weight").t());
  return w.count(path + ".bias") != 0 ? product + w.at(path + ".bias") : product;
}

// The model in fp64, one sample, one head and one query at a time.
at::Tensor exact_logits_of_sample(const DecoderSettings& s, const Weights& w,
                                  const at::Tensor& ids) {
  const int64_t length = ids.size(0), size = s.width / s.heads;
  at::Tensor x = w.at("wte.weight").index_select(0, ids) + w.at("wpe.weight").slice(0, 0, length);
  for (int64_t layer = 0; layer < s.layers; ++layer) {
    const std::string h = "h." + std::to_string(layer);
    const at::Tensor qkv = linear(w, h + ".attn.c_attn", norm(w, h + ".ln_1", x, s.norm_eps));
    std::vector<at::Tensor> heads;
    for (int64_t head = 0; head < s.heads; ++head) {
      const at::Tensor q = qkv.narrow(1, head * size, size);
      const at::Tensor k = qkv.narrow(1, s.width + head * size, size);
      const at::Tensor v = qkv.narrow(1, 2 * s.width + head * size, size);
      std::vector<at::Tensor> rows;
      for (int64_t t = 0; t < length; ++t) {
        const at::Tensor scores = k.slice(0, 0, t + 1).mv(q[t]) / std::sqrt(double(size));
        const at::Tensor weights = scores.exp() / scores.exp().sum();
        rows.push_back(v.slice(0, 0, t + 1).t().mv(weights));
      }
      heads.push_back(torch::stack(rows));
    }
    x = x + linear(w, h + ".attn.c_proj", torch::cat(heads, 1));
    const at::Tensor u = linear(w, h + ".mlp.c_fc", norm(w, h + ".ln_2", x, s.norm_eps));
    const at::Tensor inner = std::sqrt(2 / M_PI) * (u + 0.044715 * u.pow(3));
    x = x + linear(w, h + ".mlp.c_proj", 0.5 * u * (1 + inner.tanh()));
  }
  return norm(w, "ln_f", x, s.norm_eps).matmul(w.at("lm_head.weight").t());
}

at::Tensor exact_losses(const DecoderSettings& s, const Weights& w, const at::Tensor& ids,
                        const at::Tensor& targets) {
  std::vector<at::Tensor> losses;
  for (int64_t b = 0; b < ids.size(0); ++b) {
    const at::Tensor logits = exact_logits_of_sample(s, w, ids[b]);
    for (int64_t t = 0; t < ids.size(1); ++t) {
      losses.push_back(logits[t].exp().sum().log() - logits[t][targets[b][t].item<int64_t>()]);
    }
  }
  return torch::stack(losses);
}

TEST(Decoder, NanoHasItsParametersInTheOrderOfUse) {
  const auto model = make_model(plan::TrainConfig{}, 256);
  std::vector<std::string> names = {"wte.weight", "wpe.weight"};
  for (const char* h : {"h.0.", "h.1.", "h.2.", "h.3."}) {
    for (const char* path :
         {"ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"}) {
      names.push_back(std::string(h) + path + ".weight");
      names.push_back(std::string(h) + path + ".bias");
    }
  }
  names.insert(names.end(), {"ln_f.weight", "ln_f.bias", "lm_head.weight"});
  const auto parameters = model->named_parameters();
  EXPECT_EQ(parameters.keys(), names);
  int64_t count = 0;
  for (const auto& item : parameters) {
    EXPECT_TRUE(item.value().requires_grad()) << item.key();
    EXPECT_EQ(item.value().scalar_type(), at::kFloat);
    count += item.value().numel();
  }
  ASSERT_EQ(model->ties(), (std::vector<plan::Tie>{{.use = "lm_head.weight", .of = "wte.weight"}}));
  EXPECT_EQ(count - parameters["lm_head.weight"].numel(), 842496);
  EXPECT_EQ(parameters["h.0.attn.c_attn.weight"].sizes(), (std::vector<int64_t>{384, 128}));
  EXPECT_EQ(parameters["h.0.mlp.c_proj.weight"].sizes(), (std::vector<int64_t>{128, 512}));
}

TEST(Decoder, WithoutBiasThereIsNone) {
  DecoderSettings settings = kOdd;
  settings.bias = false;
  const Decoder model(settings);
  for (const std::string& name : model.named_parameters().keys()) {
    EXPECT_EQ(name.find("bias"), std::string::npos) << name;
  }
}

TEST(Decoder, StartValues) {
  const Decoder model(kOdd);
  const auto normal = [](double std) {
    return plan::Init{.kind = plan::Init::Kind::normal, .std = std};
  };
  const plan::Init zeros{.kind = plan::Init::Kind::zeros}, ones{.kind = plan::Init::Kind::ones};
  EXPECT_EQ(model.init_of("wte.weight"), normal(0.02));
  EXPECT_EQ(model.init_of("wpe.weight"), normal(0.02));
  EXPECT_EQ(model.init_of("lm_head.weight"), normal(0.02));
  EXPECT_EQ(model.init_of("h.1.attn.c_attn.weight"), normal(0.02));
  EXPECT_EQ(model.init_of("h.1.mlp.c_fc.weight"), normal(0.02));
  EXPECT_EQ(model.init_of("h.0.attn.c_proj.weight"), normal(0.02 / std::sqrt(4.0)));
  EXPECT_EQ(model.init_of("h.0.mlp.c_proj.weight"), normal(0.02 / std::sqrt(4.0)));
  EXPECT_EQ(model.init_of("h.0.attn.c_proj.bias"), zeros);
  for (const char* gain : {"h.0.ln_1.weight", "h.1.ln_2.weight", "ln_f.weight"}) {
    EXPECT_EQ(model.init_of(gain), ones) << gain;
  }
  EXPECT_EQ(model.init_of("ln_f.bias"), zeros);
}

// Values near 1 pass about ten roundings a layer, sums of up to 23 terms among them; 2^-24 each,
// random in sign, stays an order below this share of the largest element. A wrong factor, mask,
// head or epsilon is orders above it.
constexpr double kFp32Share = 5e-6;

TEST(Decoder, LossesAndGradientsOfAPlainImplementation) {
  for (const bool bias : {true, false}) {
    for (const int64_t length : {kOdd.context, int64_t{5}, int64_t{1}}) {
      DecoderSettings settings = kOdd;
      settings.bias = bias;
      settings.tied = false;
      Decoder model(settings);
      fill(model, 7);
      const at::Tensor ids = tokens(1, 3, length, kOdd.vocab);
      const at::Tensor targets = tokens(2, 3, length, kOdd.vocab);
      const Weights exact = exact_weights(model);
      const at::Tensor expected = exact_losses(settings, exact, ids, targets);
      const at::Tensor losses = model.token_losses(ids, targets, context_of());
      ASSERT_EQ(losses.sizes(), (std::vector<int64_t>{3 * length}));
      EXPECT_LT(relative_error(losses, expected), kFp32Share);
      // Unlike seeds for the tokens, so that a permutation of rows shows.
      const at::Tensor seed = torch::linspace(0.5, 1.5, 3 * length, at::kDouble);
      expected.backward(seed);
      losses.backward(seed.to(at::kFloat));
      for (const auto& item : model.named_parameters()) {
        EXPECT_LT(relative_error(item.value().grad(), exact.at(item.key()).grad()), kFp32Share)
            << item.key();
      }
    }
  }
}

TEST(Decoder, TiedHeadHasAGradientOfItsOwn) {
  Decoder model(kOdd);
  fill(model, 7);
  apply_ties(model);
  const auto parameters = model.named_parameters();
  const at::Tensor wte = parameters["wte.weight"], head = parameters["lm_head.weight"];
  ASSERT_EQ(wte.data_ptr(), head.data_ptr());
  const at::Tensor ids = tokens(1, 2, 6, kOdd.vocab), targets = tokens(2, 2, 6, kOdd.vocab);

  Weights exact = exact_weights(model);
  exact["lm_head.weight"] = exact["wte.weight"];  // one leaf: the sum of both uses
  exact_losses(kOdd, exact, ids, targets).sum().backward();
  model.token_losses(ids, targets, context_of()).sum().backward();
  EXPECT_GT(relative_error(wte.grad(), exact["wte.weight"].grad()), 0.01);
  EXPECT_LT(relative_error(wte.grad() + head.grad(), exact["wte.weight"].grad()), kFp32Share);
}

TEST(Decoder, NoTokenSeesALaterOne) {
  Decoder model(kOdd);
  fill(model, 7);
  const at::Tensor ids = tokens(1, 1, kOdd.context, kOdd.vocab);
  const at::Tensor logits = model.logits(ids, context_of());
  for (int64_t t = 0; t < kOdd.context; ++t) {
    at::Tensor other = ids.clone();
    other[0][t] = (ids[0][t].item<int64_t>() + 1) % kOdd.vocab;
    const at::Tensor changed = model.logits(other, context_of());
    EXPECT_TRUE(torch::equal(changed.slice(1, 0, t), logits.slice(1, 0, t))) << t;
    EXPECT_FALSE(torch::equal(changed[0][t], logits[0][t])) << t;
  }
}

TEST(Decoder, ProductsAreThoseOfTheCount) {
  torch_inside::install_gemm_counter();
  DecoderSettings settings = kOdd;
  settings.bias = false;
  Decoder model(settings);
  fill(model, 7);
  const at::Tensor ids = tokens(1, 3, settings.context, settings.vocab);
  const int64_t before = torch_inside::gemm_flops_of_this_thread();
  model.token_losses(ids, ids, context_of()).sum().backward();
  const int64_t counted = torch_inside::gemm_flops_of_this_thread() - before;
  // The usual count takes the gains of the norms for matrices: 6 operations each.
  const auto gains = static_cast<double>((2 * settings.layers + 1) * settings.width);
  EXPECT_EQ(static_cast<double>(counted),
            static_cast<double>(ids.numel()) * (model.flops_per_token() - 6 * gains));
}

TEST(Decoder, DropoutDependsOnStepAndSampleAlone) {
  DecoderSettings settings = kOdd;
  settings.dropout = 0.3;
  Decoder model(settings);
  fill(model, 7);
  const at::Tensor ids = tokens(1, 2, settings.context, settings.vocab);
  const auto losses = [&](int64_t step, int64_t first_sample, bool training) {
    return model.token_losses(ids, ids, context_of(step, first_sample, training));
  };
  EXPECT_TRUE(torch::equal(losses(3, 4, true), losses(3, 4, true)));
  EXPECT_FALSE(torch::equal(losses(3, 4, true), losses(4, 4, true)));
  EXPECT_FALSE(torch::equal(losses(3, 4, true), losses(3, 6, true)));
  EXPECT_TRUE(torch::equal(losses(3, 4, false), losses(9, 0, false)));
  Decoder plain(kOdd);
  fill(plain, 7);
  EXPECT_TRUE(torch::equal(losses(3, 4, false), plain.token_losses(ids, ids, context_of())));
}

TEST(Decoder, NeverTouchesTheGenerator) {
  const auto state = [] { return at::detail::getDefaultCPUGenerator().get_state(); };
  const at::Tensor before = state();
  DecoderSettings settings = kOdd;
  settings.dropout = 0.5;
  Decoder model(settings);
  fill(model, 7);
  const at::Tensor ids = tokens(1, 2, settings.context, settings.vocab);
  model.token_losses(ids, ids, context_of()).sum().backward();
  EXPECT_TRUE(torch::equal(state(), before));
}

TEST(Decoder, RefusesBadSettingsByName) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto message = [](void (*change)(DecoderSettings&)) -> std::string {
    DecoderSettings settings = kOdd;
    change(settings);
    try {
      Decoder model(settings);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "accepted";
  };
  const std::pair<std::string, void (*)(DecoderSettings&)> cases[] = {
      {"model.vocab is 0", [](DecoderSettings& s) { s.vocab = 0; }},
      {"model.layers is 0", [](DecoderSettings& s) { s.layers = 0; }},
      {"model.heads is -1", [](DecoderSettings& s) { s.heads = -1; }},
      {"model.width 15 does not divide by model.heads 4", [](DecoderSettings& s) { s.heads = 4; }},
      {"model.dropout is 1", [](DecoderSettings& s) { s.dropout = 1; }},
      {"model.norm_eps is 0", [](DecoderSettings& s) { s.norm_eps = 0; }},
      {"model.init_std is -1", [](DecoderSettings& s) { s.init_std = -1; }},
  };
  for (const auto& [expected, change] : cases) {
    EXPECT_NE(message(change).find(expected), std::string::npos)
        << message(change) << " does not say: " << expected;
  }
  DecoderSettings settings = kOdd;
  settings.dropout = nan;
  EXPECT_THROW(Decoder{settings}, UsageError);
  Decoder model(kOdd);
  fill(model, 7);
  EXPECT_THROW(model.logits(tokens(1, 1, kOdd.context + 1, kOdd.vocab), context_of()), UsageError);
}

}  // namespace
}  // namespace lockstep::models
