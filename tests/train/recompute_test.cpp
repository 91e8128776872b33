// memory.recompute through the real trainer: the bits stay, the memory is what the plan says.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/kernels/gemm.h"
#include "lockstep/memory/counting_allocator.h"
#include "lockstep/plan/activation_bytes.h"
#include "tests/train/tiny_run.h"

namespace lockstep {
namespace {

using testing::TinyRun;

void expect_same_bits(TinyRun& run, const std::vector<const char*>& settings) {
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

/// In which kernels and type a decoder computes, and what it may compute again.
struct Computed {
  const char* kernels;
  const char* compute;
  std::vector<const char*> recompute;
};

/// bf16 where the processor has it.
std::vector<Computed> computed() {
  std::vector<Computed> all = {{"aten", "fp32", {"none", "selective", "block"}},
                               {"fused", "fp32", {"none", "block"}},
                               {"fused", "fp16", {"none", "block"}}};
  if (kernels::has_bf16_products()) all.push_back({"fused", "bf16", {"none", "block"}});
  return all;
}

TEST(RecomputeRun, KeepsTheBitsOfADecoder) {
  TinyRun run;
  ASSERT_TRUE(run.config.model.tied);
  run.config.model.dropout = 0.1;
  run.config.data.global_batch = 16;  // two micro-batches a leaf
  run.config.numerics.grains = 4;
  run.config.comm.bucket_mb = 0.01;  // reduced while backward runs
  run.config.comm.first_bucket_mb = 0.001;
  for (const Computed& by : computed()) {
    SCOPED_TRACE(std::string(by.kernels) + " " + by.compute);
    run.config.numerics.kernels = by.kernels;
    run.config.precision.compute = by.compute;
    expect_same_bits(run, {by.recompute.begin() + 1, by.recompute.end()});
  }
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
  for (const Computed& by : computed()) {
    run.config.numerics.kernels = by.kernels;
    run.config.precision.compute = by.compute;
    for (const char* setting : by.recompute) {
      SCOPED_TRACE(std::string(by.kernels) + " " + by.compute + " " + setting);
      run.config.memory.recompute = setting;
      const nlohmann::json summary = run.run(1);
      const plan::DecoderShape shape = plan::decoder_shape_of(run.config);
      const auto planned = static_cast<double>(
          plan::decoder_activation_bytes(shape, plan::recompute_of(setting)).peak);
      const double counted = summary["ranks"][0]["peak_bytes"]["activations"];
      // Over the form: token ids, targets, the causal mask, and losses in fp64.
      EXPECT_GE(counted, planned);
      EXPECT_LT(counted, 1.05 * planned);
    }
  }
}

}  // namespace
}  // namespace lockstep
