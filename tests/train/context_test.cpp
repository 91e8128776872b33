// The same bits however many ranks share each sequence, beside every other axis.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/torch_inside/gemm_counter.h"
#include "tests/train/run_bits.h"
#include "tests/train/tiny_run.h"

namespace lockstep {
namespace {

using testing::Bits;
using testing::bits_of;
using testing::expect_planned_bytes;
using testing::TinyRun;

/// Three context grains of two tensor grains, several micro-batches a leaf, dropout, a tied head.
struct LongRun : TinyRun {
  LongRun() {
    config.run.steps = 3;
    config.model.layers = 4;
    config.model.width = 20;
    config.model.context = 24;
    config.model.dropout = 0.1;
    config.data.global_batch = 16;
    config.numerics.grains = 4;
    config.numerics.tensor_grains = 2;
    config.numerics.context_grains = 3;
  }
};

struct ContextCase {
  int context;
  int tensor = 1;
  int pipeline = 1;
  int data = 1;
  const char* shard = "none";
  const char* schedule = "1f1b";
  bool sequence = false;
};

std::ostream& operator<<(std::ostream& out, const ContextCase& mesh) {
  return out << "cp " << mesh.context << " tp " << mesh.tensor << " pp " << mesh.pipeline << " dp "
             << mesh.data << (mesh.sequence ? " sequence " : " ") << mesh.shard << " "
             << mesh.schedule;
}

nlohmann::json run_on(TinyRun& run, const ContextCase& mesh) {
  auto& parallel = run.config.parallel;
  parallel.context = mesh.context;
  parallel.tensor = mesh.tensor;
  parallel.pipeline = mesh.pipeline;
  parallel.sequence = mesh.sequence;
  parallel.shard = mesh.shard;
  parallel.schedule = mesh.schedule;
  return run.run(mesh.context * mesh.tensor * mesh.pipeline * mesh.data);
}

void expect_same(TinyRun& run, const std::vector<ContextCase>& meshes) {
  const Bits alone = bits_of(run_on(run, {.context = 1}));
  for (const ContextCase& mesh : meshes) {
    SCOPED_TRACE(::testing::PrintToString(mesh));
    const nlohmann::json summary = run_on(run, mesh);
    EXPECT_EQ(bits_of(summary), alone);
    expect_planned_bytes(summary);
  }
}

TEST(Context, RanksHaveTheBitsOfOneRank) {
  LongRun run;
  expect_same(run, {{.context = 2}, {.context = 3}, {.context = 2, .data = 2}});
}

TEST(Context, ShardsLieOverContextRanksToo) {
  LongRun run;
  expect_same(run, {{.context = 2, .data = 2, .shard = "zero1"},
                    {.context = 3, .shard = "zero2"},
                    {.context = 2, .data = 3, .shard = "zero3"}});
}

TEST(Context, EveryAxisAtOnce) {
  LongRun run;
  expect_same(run,
              {{.context = 2, .tensor = 2, .sequence = true},
               {.context = 3, .pipeline = 2, .schedule = "zero-bubble"},
               {.context = 2, .pipeline = 2, .data = 2, .shard = "zero3"},
               {.context = 2, .tensor = 2, .pipeline = 2, .shard = "zero1", .sequence = true}});
}

TEST(Context, LlamaAndRecompute) {
  LongRun run;
  run.config.model.family = "llama";
  run.config.model.bias = false;
  run.config.model.tied = false;
  run.config.model.heads = 4;
  run.config.model.kv_heads = 2;
  run.config.model.width = 24;
  run.config.memory.recompute = "block";
  expect_same(run, {{.context = 3}, {.context = 2, .tensor = 2, .data = 2, .shard = "zero3"}});
}

/// Equal digests prove nothing if every rank does all the work: grains have equal shares.
TEST(Context, WorkIsReallySplit) {
  torch_inside::install_gemm_counter();
  LongRun run;
  run.config.data.eval_batches = 1;
  const nlohmann::json alone = run_on(run, {.context = 1});
  const nlohmann::json shared = run_on(run, {.context = 3});
  for (const auto& rank : shared["ranks"]) {
    EXPECT_EQ(rank["gemm_flops"].get<int64_t>() * 3, alone["ranks"][0]["gemm_flops"]);
  }
  EXPECT_GT(shared["groups"]["cp"]["bytes"], 0);
}

/// Another number of grains is another run, and as good a one.
TEST(Context, GrainsAreAPartOfTheIdentity) {
  LongRun run;
  const nlohmann::json three = run_on(run, {.context = 1});
  run.config.numerics.context_grains = 1;
  const nlohmann::json one = run_on(run, {.context = 1});
  EXPECT_NE(three["identity"], one["identity"]);
  EXPECT_NE(three["param_digest"], one["param_digest"]);
  EXPECT_NEAR(three["loss"].get<double>(), one["loss"].get<double>(), 1e-5);
}

}  // namespace
}  // namespace lockstep
