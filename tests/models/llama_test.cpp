// The llama settings of the decoder against a plain implementation in fp64.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/models/decoder.h"
#include "lockstep/torch_inside/gemm_counter.h"
#include "tests/models/model_fixture.h"

namespace lockstep::models {
namespace {

using Weights = std::map<std::string, at::Tensor>;

const DecoderSettings kOdd{.style = DecoderStyle::llama,
                           .vocab = 11,
                           .layers = 2,
                           .heads = 6,
                           .kv_heads = 2,
                           .width = 36,
                           .ffn = 23,
                           .context = 7,
                           .tied = false,
                           .bias = false,
                           .norm_eps = 1e-3,
                           .rope_theta = 100};

at::Tensor rms(const at::Tensor& x, const at::Tensor& gain, double eps) {
  return x / (x.pow(2).mean(-1, true) + eps).sqrt() * gain;
}

/// Features i and i + K/2 are a complex number, turned by position * theta^(-2i/K).
at::Tensor turned(const at::Tensor& x, double theta) {
  const int64_t length = x.size(0), half = x.size(1) / 2;
  const at::Tensor angle =
      torch::outer(torch::arange(length, at::kDouble),
                   torch::pow(theta, -torch::arange(half, at::kDouble) / double(half)));
  const at::Tensor z = torch::complex(x.slice(1, 0, half), x.slice(1, half)) *
                       torch::polar(torch::ones_like(angle), angle);
  return torch::cat({torch::real(z), torch::imag(z)}, 1);
}

/// One sample, one head and one query at a time.
at::Tensor exact_logits(const DecoderSettings& s, const Weights& w, const at::Tensor& ids) {
  const int64_t K = s.width / s.heads, G = s.heads / s.kv_heads;
  at::Tensor x = w.at("wte.weight").index_select(0, ids);
  for (int64_t layer = 0; layer < s.layers; ++layer) {
    const std::string h = "h." + std::to_string(layer);
    const at::Tensor n = rms(x, w.at(h + ".ln_1.weight"), s.norm_eps);
    const at::Tensor qkv = n.matmul(w.at(h + ".attn.c_attn.weight").t());
    std::vector<at::Tensor> heads;
    for (int64_t head = 0; head < s.heads; ++head) {
      const int64_t kv = head / G;
      const at::Tensor q = turned(qkv.narrow(1, head * K, K), s.rope_theta);
      const at::Tensor k = turned(qkv.narrow(1, s.width + kv * K, K), s.rope_theta);
      const at::Tensor v = qkv.narrow(1, s.width + s.kv_heads * K + kv * K, K);
      std::vector<at::Tensor> rows;
      for (int64_t t = 0; t < ids.size(0); ++t) {
        const at::Tensor weights =
            torch::softmax(k.slice(0, 0, t + 1).mv(q[t]) / std::sqrt(double(K)), 0);
        rows.push_back(v.slice(0, 0, t + 1).t().mv(weights));
      }
      heads.push_back(torch::stack(rows));
    }
    x = x + torch::cat(heads, 1).matmul(w.at(h + ".attn.c_proj.weight").t());
    const at::Tensor m = rms(x, w.at(h + ".ln_2.weight"), s.norm_eps);
    const at::Tensor both = m.matmul(w.at(h + ".mlp.gate_up.weight").t());
    const at::Tensor gate = both.slice(1, 0, s.ffn), up = both.slice(1, s.ffn);
    x = x + (gate * torch::sigmoid(gate) * up).matmul(w.at(h + ".mlp.c_proj.weight").t());
  }
  return rms(x, w.at("ln_f.weight"), s.norm_eps).matmul(w.at("lm_head.weight").t());
}

TEST(Llama, LossesAndGradientsOfAPlainImplementation) {
  for (const int64_t kv_heads : {2, 6, 1}) {
    DecoderSettings settings = kOdd;
    settings.kv_heads = kv_heads;
    Decoder model(settings);
    fill(model, 7);
    const at::Tensor ids = tokens(1, 3, 7, kOdd.vocab), targets = tokens(2, 3, 7, kOdd.vocab);
    Weights exact;
    for (const auto& item : model.named_parameters()) {
      exact[item.key()] = item.value().detach().to(at::kDouble).requires_grad_();
    }
    std::vector<at::Tensor> expected;
    for (int64_t b = 0; b < 3; ++b) {
      expected.push_back(at::cross_entropy_loss(exact_logits(settings, exact, ids[b]), targets[b],
                                                {}, at::Reduction::None));
    }
    const at::Tensor exact_losses = torch::cat(expected);
    const at::Tensor losses = model.token_losses(ids, targets, context_of());
    // As in decoder_test: sums of at most 36 terms in fp32, a dozen of them one after the other.
    EXPECT_LT(relative_error(losses, exact_losses), 1e-5);
    const at::Tensor seed = torch::linspace(0.5, 1.5, 21, at::kDouble);
    exact_losses.backward(seed);
    losses.backward(seed.to(at::kFloat));
    for (const auto& item : model.named_parameters()) {
      EXPECT_LT(relative_error(item.value().grad(), exact.at(item.key()).grad()), 1e-5)
          << item.key();
    }
  }
}

TEST(Llama, ParametersInTheOrderOfUse) {
  DecoderSettings settings = kOdd;
  settings.layers = 1;
  const Decoder model(settings);
  EXPECT_EQ(model.named_parameters().keys(),
            (std::vector<std::string>{"wte.weight", "h.0.ln_1.weight", "h.0.attn.c_attn.weight",
                                      "h.0.attn.c_proj.weight", "h.0.ln_2.weight",
                                      "h.0.mlp.gate_up.weight", "h.0.mlp.c_proj.weight",
                                      "ln_f.weight", "lm_head.weight"}));
}

TEST(Llama, NoTokenSeesALaterOne) {
  Decoder model(kOdd);
  fill(model, 7);
  const at::Tensor ids = tokens(1, 1, kOdd.context, kOdd.vocab);
  const at::Tensor logits = model.logits(ids, context_of());
  at::Tensor other = ids.clone();
  other[0][4] = (ids[0][4].item<int64_t>() + 1) % kOdd.vocab;
  const at::Tensor changed = model.logits(other, context_of());
  EXPECT_TRUE(torch::equal(changed.slice(1, 0, 4), logits.slice(1, 0, 4)));
  EXPECT_FALSE(torch::equal(changed[0][4], logits[0][4]));
}

TEST(Llama, ProductsAreThoseOfTheCount) {
  torch_inside::install_gemm_counter();
  DecoderSettings settings = kOdd;
  settings.kv_heads = 6;
  Decoder model(settings);
  fill(model, 7);
  const at::Tensor ids = tokens(1, 3, settings.context, settings.vocab);
  const int64_t before = torch_inside::gemm_flops_of_this_thread();
  model.token_losses(ids, ids, context_of()).sum().backward();
  const int64_t counted = torch_inside::gemm_flops_of_this_thread() - before;
  // The usual count takes the gains of the norms, and the embedding, for matrices; an embedding
  // that is not tied is no product.
  const auto others =
      static_cast<double>((2 * settings.layers + 1 + settings.vocab) * settings.width);
  EXPECT_EQ(static_cast<double>(counted),
            static_cast<double>(ids.numel()) * (model.flops_per_token() - 6 * others));
}

TEST(Llama, WidthOfTheFeedForwardPart) {
  EXPECT_EQ(llama_ffn(128), 352);     // 341.3
  EXPECT_EQ(llama_ffn(4096), 10944);  // 10922.7
  EXPECT_EQ(llama_ffn(12), 32);
  plan::TrainConfig config;
  config.model.family = "llama";
  config.model.bias = false;
  const auto parameters = make_model(config, 256)->named_parameters();
  EXPECT_EQ(parameters["h.0.mlp.gate_up.weight"].sizes(), (std::vector<int64_t>{704, 128}));
}

TEST(Llama, RefusesWhatItDoesNotHave) {
  const auto message = [](DecoderSettings settings) -> std::string {
    try {
      Decoder model(settings);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "accepted";
  };
  DecoderSettings settings = kOdd;
  settings.bias = true;
  EXPECT_NE(message(settings).find("set model.bias = false"), std::string::npos);
  settings = kOdd;
  settings.kv_heads = 4;
  EXPECT_NE(message(settings).find("model.heads 6 does not divide by model.kv_heads 4"),
            std::string::npos);
  settings = kOdd;
  settings.width = 30;
  EXPECT_NE(message(settings).find("5 features a head"), std::string::npos);
  settings = kOdd;
  settings.style = DecoderStyle::gpt2;
  EXPECT_NE(message(settings).find("model.kv_heads is 2, but gpt2"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::models
