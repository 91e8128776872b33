// The decoder over tensor grains: the numbers of the whole one, and the same bits on every layout.
#include <map>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/models/decoder.h"
#include "lockstep/plan/tensor_bytes.h"
#include "tests/comm/on_ranks.h"
#include "tests/models/model_fixture.h"

namespace lockstep::models {
namespace {

constexpr int kGrains = 4;
constexpr int64_t kSamples = 3;

DecoderSettings settings_of(DecoderStyle style, int grains = kGrains) {
  const bool llama = style == DecoderStyle::llama;
  return {.style = style,
          .vocab = 13,
          .layers = 2,
          .heads = 8,
          .kv_heads = llama ? 4 : 0,
          .width = 48,
          .ffn = 20,
          .context = 8,
          .dropout = 0.1,
          .bias = !llama,
          .norm_eps = 1e-3,
          .tensor = plan::place_of(grains, 1, 0, false)};
}

struct Result {
  at::Tensor losses;
  std::map<std::string, at::Tensor> gradients;  // by path
};

/// Of one micro-batch; with a queue, weights' gradients are taken from it.
Result result_of(Decoder& model, RankContext context, int64_t vocab = 13) {
  fill(model, 7);
  apply_ties(model);
  const at::Tensor ids = tokens(1, kSamples, 8, vocab), targets = tokens(2, kSamples, 8, vocab);
  Result result;
  const at::Tensor losses = model.token_losses(ids, targets, context);
  losses.backward(torch::linspace(0.5, 1.5, losses.numel()));
  result.losses = losses.detach();
  if (context.weight_queue) {
    for (const DeferredGradient& entry : context.weight_queue->entries) {
      EXPECT_FALSE(entry.weight.grad().defined());
      const_cast<at::Tensor&>(entry.weight).mutable_grad() = entry.compute();
    }
  }
  for (const auto& item : model.named_parameters()) {
    result.gradients[item.key()] = item.value().grad();
  }
  return result;
}

/// Those of `expected` that `got` has, all with equal bits.
void expect_part(const Result& got, const Result& expected) {
  EXPECT_TRUE(test::same_bits(got.losses, expected.losses)) << "losses";
  for (const auto& [path, gradient] : got.gradients) {
    ASSERT_TRUE(gradient.defined()) << path;
    EXPECT_TRUE(test::same_bits(gradient.contiguous(), expected.gradients.at(path).contiguous()))
        << path;
  }
}

RankContext context_on(ProcessGroup& ranks, const plan::TensorPlace& place) {
  RankContext context = context_of(/*step=*/2, /*first_sample=*/4);
  context.tp = std::shared_ptr<ProcessGroup>(&ranks, [](ProcessGroup*) {});
  context.tensor = place;
  return context;
}

class TensorDecoder : public testing::TestWithParam<DecoderStyle> {};

TEST_P(TensorDecoder, HasTheSameBitsOnEveryLayout) {
  DecoderSettings settings = settings_of(GetParam());
  Decoder alone(settings);
  const Result expected = result_of(alone, context_of(2, 4));
  for (const bool sequence : {false, true}) {
    test::on_ranks({1, 2, 3, 4}, [&](ProcessGroup& ranks) {
      DecoderSettings part = settings;
      part.tensor = plan::place_of(kGrains, ranks.size(), ranks.rank(), sequence);
      Decoder model(part);
      const Result got = result_of(model, context_on(ranks, part.tensor));
      expect_part(got, expected);
      EXPECT_EQ(got.gradients.count("wte.weight@0"), ranks.rank() == 0 ? 1u : 0u);
    });
  }
}

TEST_P(TensorDecoder, RecomputeGatheringAgainAndTheQueueKeepTheBits) {
  DecoderSettings settings = settings_of(GetParam());
  Decoder alone(settings);
  const Result expected = result_of(alone, context_of(2, 4));
  using plan::Recompute;
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::block}) {
    test::on_ranks({3}, [&](ProcessGroup& ranks) {
      DecoderSettings part = settings;
      part.recompute = recompute;
      part.gather_again = recompute != Recompute::none;
      part.tensor = plan::place_of(kGrains, ranks.size(), ranks.rank(), /*sequence=*/true);
      Decoder model(part);
      RankContext context = context_on(ranks, part.tensor);
      context.weight_queue = std::make_shared<WeightQueue>();
      expect_part(result_of(model, context), expected);
      // c_attn, c_proj, c_fc and c_proj of two layers, and the head; one bias a c_proj.
      const int grains = part.tensor.local.size();
      const int biases = part.bias ? 2 * (2 * grains + 2) : 0;
      EXPECT_EQ(static_cast<int>(context.weight_queue->entries.size()),
                (2 * 4 + 1) * grains + biases);
    });
  }
}

TEST_P(TensorDecoder, OfOneGrainTheQueueKeepsTheBits) {
  Decoder plain(settings_of(GetParam(), 1)), queued(settings_of(GetParam(), 1));
  const Result expected = result_of(plain, context_of(2, 4));
  RankContext context = context_of(2, 4);
  context.weight_queue = std::make_shared<WeightQueue>();
  expect_part(result_of(queued, context), expected);
  EXPECT_FALSE(context.weight_queue->entries.empty());
}

TEST_P(TensorDecoder, GivesTheNumbersOfTheWholeOne) {
  DecoderSettings whole = settings_of(GetParam(), 1), divided = settings_of(GetParam());
  Decoder one(whole), four(divided);
  const Result expected = result_of(one, context_of(2, 4));
  const Result got = result_of(four, context_of(2, 4));
  // Both round each sum of at most 60 terms in fp32, in another order: kFp32Share of decoder_test.
  EXPECT_LT(relative_error(got.losses, expected.losses), 1e-5);
  const auto gradients = logical_gradients(four);
  ASSERT_EQ(gradients.size(), expected.gradients.size());
  for (const auto& [name, gradient] : gradients) {
    EXPECT_LT(relative_error(gradient, expected.gradients.at(name)), 1e-5) << name;
  }

  const RankContext evaluation = context_of(0, 0, /*training=*/false);
  for (const int64_t length : {8, 5, 1}) {  // of any length, also one that does not divide
    const at::Tensor ids = tokens(3, 2, length, 13);
    const at::Tensor logits = four.logits(ids, evaluation);
    ASSERT_EQ(logits.sizes(), (std::vector<int64_t>{2, length, 13}));
    EXPECT_LT(relative_error(logits, one.logits(ids, evaluation)), 1e-5);
  }
}

TEST_P(TensorDecoder, PiecesOfAPipelineMakeTheWhole) {
  DecoderSettings settings = settings_of(GetParam());
  Decoder whole(settings);
  const Result expected = result_of(whole, context_of(2, 4));
  test::on_ranks({2}, [&](ProcessGroup& ranks) {
    DecoderSettings part = settings;
    part.chunks = plan::cut_layers(part.layers, 2);
    part.tensor = plan::place_of(kGrains, 2, ranks.rank(), /*sequence=*/true);
    Decoder model(part);
    fill(model, 7);
    apply_ties(model);
    const RankContext context = context_on(ranks, part.tensor);
    const at::Tensor between = model.run_chunk(0, tokens(1, kSamples, 8, 13), {}, context);
    EXPECT_EQ(between.sizes(), (std::vector<int64_t>{2, kSamples, 2, part.width}));
    EXPECT_TRUE(test::same_bits(model.run_chunk(1, between, tokens(2, kSamples, 8, 13), context),
                                expected.losses));
    EXPECT_EQ(model.chunk_of(base::str("h.1.attn.c_attn.weight@", part.tensor.local.lo)), 1);
  });
}

TEST_P(TensorDecoder, MovesThePlannedBytes) {
  for (const bool sequence : {false, true}) {
    for (const auto recompute : {plan::Recompute::none, plan::Recompute::block}) {
      test::on_ranks({2, 3, 4}, [&](ProcessGroup& ranks) {
        DecoderSettings part = settings_of(GetParam());
        part.recompute = recompute;
        part.tensor = plan::place_of(kGrains, ranks.size(), ranks.rank(), sequence);
        Decoder model(part);
        ranks.reset_totals();
        result_of(model, context_on(ranks, part.tensor));
        const bool llama = GetParam() == DecoderStyle::llama;
        const plan::TensorBytes planned =
            plan::tensor_bytes({.batch = kSamples,
                                .sequence = 8,
                                .width = part.width,
                                .layers = part.layers,
                                .positions = !llama,
                                .norm_bias = !llama,
                                .recompute_blocks = recompute == plan::Recompute::block},
                               part.tensor);
        EXPECT_EQ(ranks.totals().bytes, planned.forward + planned.backward);
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Styles, TensorDecoder,
                         testing::Values(DecoderStyle::gpt2, DecoderStyle::llama),
                         [](const auto& info) {
                           return info.param == DecoderStyle::gpt2 ? "Gpt2" : "Llama";
                         });

TEST(TensorDecoder, NamesAndSlices) {
  DecoderSettings settings = settings_of(DecoderStyle::llama);
  settings.tensor = plan::place_of(kGrains, 4, 2, false);
  const Decoder model(settings);
  const auto parameters = model.named_parameters();
  EXPECT_EQ(parameters["wte.weight@2"].sizes(), (std::vector<int64_t>{4, 48}));
  EXPECT_EQ(parameters["h.0.attn.c_attn.weight@2"].sizes(), (std::vector<int64_t>{24, 48}));
  EXPECT_EQ(parameters["h.0.mlp.gate_up.weight@2"].sizes(), (std::vector<int64_t>{10, 48}));
  EXPECT_EQ(parameters["h.0.mlp.c_proj.weight@2"].sizes(), (std::vector<int64_t>{48, 5}));
  EXPECT_EQ(parameters["ln_f.weight"].sizes(), (std::vector<int64_t>{48}));
  EXPECT_EQ(model.slice_of("h.0.attn.c_attn.weight@2"),
            (plan::TensorSlice{.logical = "h.0.attn.c_attn.weight",
                               .shape = {96, 48},
                               .dim = 0,
                               .blocks = {48, 24, 24},
                               .grain = 2,
                               .grains = 4}));
  EXPECT_EQ(model.slice_of("wte.weight@2"), (plan::TensorSlice{.logical = "wte.weight",
                                                               .shape = {13, 48},
                                                               .dim = 0,
                                                               .blocks = {16},
                                                               .grain = 2,
                                                               .grains = 4}));
  EXPECT_EQ(model.slice_of("h.0.mlp.c_proj.weight@2").dim, 1);
  EXPECT_EQ(model.slice_of("ln_f.weight"), plan::TensorSlice{}) << "whole";
  EXPECT_EQ(model.init_of("h.0.mlp.c_proj.weight@2"), model.init_of("h.0.mlp.c_proj.weight"));
  EXPECT_EQ(model.ties(),
            (std::vector<plan::Tie>{{.use = "lm_head.weight@2", .of = "wte.weight@2"}}));
}

TEST(TensorDecoder, GrainsThatDoNotDivideAreRefusedByName) {
  const auto message = [](void (*change)(DecoderSettings&)) {
    DecoderSettings settings = settings_of(DecoderStyle::llama);
    change(settings);
    return test::message_of<UsageError>([&] { Decoder model(settings); });
  };
  const auto names = [](const std::string& text, const char* field) {
    EXPECT_NE(text.find(field), std::string::npos) << text;
    EXPECT_NE(text.find("tensor grains"), std::string::npos) << text;
  };
  names(message([](DecoderSettings& s) { s.heads = s.kv_heads = 6; }), "model.heads 6");
  names(message([](DecoderSettings& s) { s.kv_heads = 2; }), "model.kv_heads 2");
  names(message([](DecoderSettings& s) { s.ffn = 21; }), "model.ffn 21");
  names(message([](DecoderSettings& s) { s.context = 7; }), "model.context 7");
  Decoder model(settings_of(DecoderStyle::gpt2));
  names(test::message_of<UsageError>(
            [&] { model.token_losses(tokens(1, 1, 7, 13), tokens(1, 1, 7, 13), context_of()); }),
        "a sequence of 7");
}

}  // namespace
}  // namespace lockstep::models
