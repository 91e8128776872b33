// memory.recompute: the same bits, and the bytes that plan::decoder_activation_bytes says.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/kernels/attention.h"
#include "lockstep/kernels/gemm.h"
#include "lockstep/kernels/token_loss.h"
#include "lockstep/memory/account.h"
#include "lockstep/memory/counting_allocator.h"
#include "lockstep/models/decoder.h"
#include "lockstep/models/mlp.h"
#include "lockstep/plan/activation_bytes.h"
#include "lockstep/plan/detail/activation_walk.h"
#include "tests/models/model_fixture.h"

namespace lockstep::models {
namespace {

using plan::Recompute;

/// What `memory.recompute` may be: the fused attention keeps nothing that selective would leave
/// out.
std::vector<Recompute> settings_of(bool fused) {
  if (fused) return {Recompute::none, Recompute::block};
  return {Recompute::none, Recompute::selective, Recompute::block};
}

/// Losses, then the gradient of each parameter.
std::vector<at::Tensor> losses_and_gradients(LanguageModel& model, int64_t vocab) {
  fill(model, 7);
  apply_ties(model);
  const at::Tensor ids = tokens(1, 3, 7, vocab), targets = tokens(2, 3, 7, vocab);
  std::vector<at::Tensor> all;
  // Two micro-batches into the same gradients.
  for (const int64_t step : {0, 1}) {
    const at::Tensor losses = model.token_losses(ids, targets, context_of(step));
    losses.backward(torch::linspace(0.5, 1.5, losses.numel()));
    all.push_back(losses.detach());
  }
  for (const auto& item : model.named_parameters()) all.push_back(item.value().grad());
  return all;
}

void expect_equal(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(torch::equal(got[i], expected[i])) << i;
}

TEST(ModelRecompute, DecoderKeepsItsBits) {
  using plan::ComputeType;
  for (const fused::Arithmetic arithmetic :
       {fused::Arithmetic{}, fused::Arithmetic{true, ComputeType::fp32},
        fused::Arithmetic{true, ComputeType::bf16}, fused::Arithmetic{true, ComputeType::fp16}}) {
    SCOPED_TRACE(arithmetic.fused ? name_of(arithmetic.compute) : "aten");
    if (arithmetic.compute == ComputeType::bf16 && !kernels::has_bf16_products()) continue;
    DecoderSettings settings{.vocab = 11,
                             .layers = 3,
                             .heads = 3,
                             .width = 15,
                             .ffn = 23,
                             .context = 7,
                             .dropout = 0.1,
                             .arithmetic = arithmetic};
    Decoder plain(settings);
    const std::vector<at::Tensor> expected = losses_and_gradients(plain, settings.vocab);
    for (const Recompute recompute : settings_of(arithmetic.fused)) {
      settings.recompute = recompute;
      Decoder model(settings);
      expect_equal(losses_and_gradients(model, settings.vocab), expected);
    }
  }
}

TEST(ModelRecompute, MlpKeepsItsBits) {
  MlpSettings settings{.vocab = 11, .layers = 3, .width = 5, .ffn = 13, .dropout = 0.1};
  Mlp plain(settings);
  const std::vector<at::Tensor> expected = losses_and_gradients(plain, settings.vocab);
  settings.recompute = true;
  Mlp model(settings);
  expect_equal(losses_and_gradients(model, settings.vocab), expected);
}

TEST(ModelRecompute, SelectiveIsRefusedWithoutAttention) {
  plan::TrainConfig config;
  config.model.family = "mlp";
  config.model.tied = false;
  config.memory.recompute = "selective";
  EXPECT_THROW(make_model(config, 11), UsageError);
}

struct Case {
  const char* name;
  plan::DecoderShape shape;
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

class ActivationBytesOf : public testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() { memory::install_counting_allocator(); }
};

struct Measured {
  int64_t kept;
  int64_t peak;
};

/// One forward and backward, gradients added in place as in a training step.
Measured measured(const plan::DecoderShape& shape, Recompute recompute) {
  Decoder model({.vocab = shape.vocab,
                 .layers = shape.layers,
                 .heads = shape.heads,
                 .width = shape.width,
                 .ffn = shape.ffn,
                 .context = shape.sequence,
                 .dropout = shape.dropout ? 0.1 : 0.0,
                 .bias = shape.bias,
                 .recompute = recompute,
                 .arithmetic = {shape.fused, shape.compute}});
  fill(model, 7);
  for (const at::Tensor& parameter : model.parameters()) {
    parameter.mutable_grad() = torch::zeros_like(parameter);
  }
  const at::Tensor ids = tokens(1, shape.batch, shape.sequence, shape.vocab);
  {
    const at::NoGradGuard guard;
    model.logits(ids, context_of());  // makes the causal mask
  }
  memory::Account& account = memory::Account::open();
  const memory::AccountScope scope(account);
  const memory::KindScope kind(memory::Kind::activations);
  const auto at = static_cast<size_t>(memory::Kind::activations);
  Measured bytes{};
  {
    const at::Tensor losses = model.token_losses(ids, ids, context_of());
    bytes.kept = account.current()[at];
    losses.backward(at::full_like(losses, 0.5));
    bytes.peak = account.peak()[at];
  }
  EXPECT_EQ(account.current()[at], 0) << "a graph is left";
  account.close();
  return bytes;
}

void expect_the_form(const plan::DecoderShape& shape) {
  for (const Recompute recompute : settings_of(shape.fused)) {
    SCOPED_TRACE(static_cast<int>(recompute));
    const plan::ActivationBytes form = plan::decoder_activation_bytes(shape, recompute);
    const Measured count = measured(shape, recompute);
    EXPECT_EQ(count.kept, form.kept);
    EXPECT_EQ(count.peak, form.peak);
  }
}

TEST_P(ActivationBytesOf, TheCountIsTheForm) { expect_the_form(GetParam().shape); }

class FusedActivationBytesOf : public ActivationBytesOf {};

TEST_P(FusedActivationBytesOf, TheCountIsTheForm) {
  for (const plan::ComputeType compute :
       {plan::ComputeType::fp32, plan::ComputeType::bf16, plan::ComputeType::fp16}) {
    if (compute == plan::ComputeType::bf16 && !kernels::has_bf16_products()) continue;
    for (const bool dropout : {false, true}) {
      SCOPED_TRACE(base::str(name_of(compute), dropout ? ", dropout" : ""));
      plan::DecoderShape shape = GetParam().shape;
      shape.dropout = dropout;
      shape.fused = true;
      shape.compute = compute;
      expect_the_form(shape);
    }
  }
}

/// The plan has no kernels to ask.
TEST_P(FusedActivationBytesOf, ScratchIsTheKernels) {
  plan::DecoderShape shape = GetParam().shape;
  shape.fused = true;
  EXPECT_EQ(plan::detail::attention_scratch_bytes(shape),
            4 * kernels::attention_scratch({.samples = shape.batch,
                                            .sequence = shape.sequence,
                                            .heads = shape.heads,
                                            .kv_heads = shape.heads,
                                            .width = shape.width / shape.heads}));
  for (const plan::ComputeType compute : {plan::ComputeType::fp32, plan::ComputeType::bf16}) {
    shape.compute = compute;
    EXPECT_EQ(plan::detail::token_loss_scratch_bytes(shape),
              4 * kernels::token_loss_scratch({.type = compute == plan::ComputeType::bf16
                                                           ? kernels::OperandType::bf16
                                                           : kernels::OperandType::fp32,
                                               .rows = shape.batch * shape.sequence,
                                               .width = shape.width,
                                               .vocab = shape.vocab}));
  }
}

constexpr auto kName = [](const auto& info) { return std::string(info.param.name); };

const auto kShapes =
    testing::Values(Case{"TwelveLayers", {2, 32, 64, 4, 256, 12, 128, false, true}},
                    Case{"Odd", {3, 7, 15, 3, 23, 2, 11, true, true}},
                    Case{"Dropout", {2, 32, 64, 4, 256, 12, 128, true, true}},
                    Case{"LongSequence", {1, 128, 32, 4, 64, 4, 64, true, false}},
                    Case{"LargeVocabulary", {2, 16, 32, 2, 128, 3, 2000, false, true}},
                    Case{"ManyTokens", {5, 128, 16, 2, 48, 2, 99, false, false}},
                    Case{"ManySequences", {40, 8, 32, 4, 32, 3, 50, false, true}},
                    Case{"WideInside", {1, 4, 48, 2, 512, 3, 16, false, true}});

INSTANTIATE_TEST_SUITE_P(Shapes, ActivationBytesOf, kShapes, kName);
INSTANTIATE_TEST_SUITE_P(Shapes, FusedActivationBytesOf, kShapes, kName);

}  // namespace
}  // namespace lockstep::models
