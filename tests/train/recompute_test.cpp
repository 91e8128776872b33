// memory.recompute through the real trainer: the bits stay, the memory is what the plan says.

#include <gtest/gtest.h>

#include <string>

#include "lockstep/memory/counting_allocator.h"
#include "lockstep/plan/activation_bytes.h"
#include "tests/train/tiny_run.h"

namespace lockstep {
namespace {

using testing::TinyRun;

void expect_same_bits(TinyRun& run, std::initializer_list<const char*> settings) {
  run.config.memory.recompute = "none";
  const nlohmann::json plain = run.run(1);
  for (const char* setting : settings) {
    run.config.memory.recompute = setting;
    for (const int ranks : {1, 3}) {
      const nlohmann::json summary = run.run(ranks);
      for (const char* value : {"param_digest", "grad_norm", "loss", "val_loss"}) {
        EXPECT_EQ(summary[value], plain[value]) << value << ", " << setting << ", " << ranks;
      }
    }
  }
}

TEST(RecomputeRun, KeepsTheBitsOfADecoder) {
  TinyRun run;
  ASSERT_TRUE(run.config.model.tied);
  run.config.model.dropout = 0.1;
  run.config.data.global_batch = 16;  // two micro-batches a leaf
  run.config.numerics.grains = 4;
  run.config.comm.bucket_mb = 0.01;  // reduced while backward runs
  run.config.comm.first_bucket_mb = 0.001;
  expect_same_bits(run, {"selective", "block"});
}

TEST(RecomputeRun, KeepsTheBitsOfAnMlp) {
  TinyRun run;
  run.config.model.family = "mlp";
  run.config.model.tied = false;
  run.config.model.dropout = 0.1;
  expect_same_bits(run, {"block"});
}

TEST(RecomputeRun, PeakIsThePlans) {
  memory::install_counting_allocator();
  TinyRun run;
  run.config.run.steps = 2;
  run.config.model.layers = 12;
  run.config.model.context = 32;
  run.config.model.dropout = 0.1;
  const auto& model = run.config.model;
  const plan::DecoderShape shape{.batch = run.config.data.micro_batch,
                                 .sequence = model.context,
                                 .width = model.width,
                                 .heads = model.heads,
                                 .ffn = 4 * model.width,
                                 .layers = model.layers,
                                 .vocab = model.vocab,
                                 .dropout = true,
                                 .bias = model.bias};
  for (const char* setting : {"none", "selective", "block"}) {
    run.config.memory.recompute = setting;
    const nlohmann::json summary = run.run(1);
    const auto planned = static_cast<double>(
        plan::decoder_activation_bytes(shape, plan::recompute_of(setting)).peak);
    const double counted = summary["ranks"][0]["peak_bytes"]["activations"];
    // Over the form: token ids, targets, the causal mask, and losses in fp64.
    EXPECT_GE(counted, planned) << setting;
    EXPECT_LT(counted, 1.05 * planned) << setting;
  }
}

}  // namespace
}  // namespace lockstep
