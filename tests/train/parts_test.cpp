// The same bits on any mesh of data, pipeline and tensor parallelism, with any shard stage.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/torch_inside/gemm_counter.h"
#include "lockstep/train/model_file.h"
#include "tests/train/run_bits.h"
#include "tests/train/tiny_run.h"

namespace lockstep {
namespace {

using testing::Bits;
using testing::bits_of;
using testing::expect_planned_bytes;
using testing::TinyRun;

/// Two grains of everything, a vocabulary that does not divide, several micro-batches a leaf.
struct GrainedRun : TinyRun {
  GrainedRun() {
    config.run.steps = 3;
    config.model.layers = 8;
    config.model.width = 20;
    config.model.context = 10;
    config.model.dropout = 0.1;
    config.data.global_batch = 16;
    config.numerics.grains = 4;
    config.numerics.tensor_grains = 2;
  }
};

struct MeshCase {
  int tensor;
  int pipeline;
  int data;
  bool sequence;
  const char* shard;
  const char* schedule;
  int chunks;
};

std::ostream& operator<<(std::ostream& out, const MeshCase& mesh) {
  return out << "tp " << mesh.tensor << " pp " << mesh.pipeline << " dp " << mesh.data
             << (mesh.sequence ? " sequence " : " ") << mesh.shard << " " << mesh.schedule;
}

nlohmann::json run_on(TinyRun& run, const MeshCase& mesh) {
  auto& parallel = run.config.parallel;
  parallel.tensor = mesh.tensor;
  parallel.pipeline = mesh.pipeline;
  parallel.sequence = mesh.sequence;
  parallel.shard = mesh.shard;
  parallel.schedule = mesh.schedule;
  parallel.chunks = mesh.chunks;
  return run.run(mesh.tensor * mesh.pipeline * mesh.data);
}

void expect_same(TinyRun& run, const std::vector<MeshCase>& meshes) {
  const Bits alone = bits_of(run_on(run, {1, 1, 1, false, "none", "1f1b", 1}));
  for (const MeshCase& mesh : meshes) {
    const nlohmann::json summary = run_on(run, mesh);
    EXPECT_EQ(bits_of(summary), alone) << mesh;
    SCOPED_TRACE(::testing::PrintToString(mesh));
    expect_planned_bytes(summary);
  }
}

TEST(Parts, TensorRanksHaveTheBitsOfOneRank) {
  GrainedRun run;
  expect_same(run, {{2, 1, 1, false, "none", "1f1b", 1},
                    {2, 1, 1, true, "none", "1f1b", 1},
                    {2, 1, 2, false, "none", "1f1b", 1},
                    {2, 1, 2, true, "zero1", "1f1b", 1},
                    {2, 1, 2, true, "zero2", "1f1b", 1},
                    {2, 1, 3, false, "zero3", "1f1b", 1}});
}

TEST(Parts, EveryMeshHasTheBitsOfOneRank) {
  GrainedRun run;
  expect_same(run, {{1, 2, 1, false, "none", "1f1b", 1},
                    {2, 2, 1, false, "none", "gpipe", 1},
                    {2, 2, 1, true, "none", "zero-bubble", 1},
                    {2, 2, 2, true, "zero1", "1f1b", 1},
                    {2, 2, 2, false, "zero3", "interleaved", 2},
                    {2, 4, 1, true, "none", "zero-bubble-v", 1}});
}

/// Four grains on three ranks are two, one and one.
TEST(Parts, GrainsNeedNotDivideAmongRanks) {
  GrainedRun run;
  run.config.model.heads = 4;
  run.config.model.context = 12;
  run.config.numerics.tensor_grains = 4;
  expect_same(run, {{3, 1, 1, false, "none", "1f1b", 1},
                    {3, 1, 1, true, "none", "1f1b", 1},
                    {4, 1, 1, true, "none", "1f1b", 1},
                    {2, 1, 1, false, "none", "1f1b", 1}});
}

TEST(Parts, LlamaAndRecompute) {
  GrainedRun run;
  run.config.model.family = "llama";
  run.config.model.bias = false;
  run.config.model.tied = false;
  run.config.model.heads = 4;
  run.config.model.kv_heads = 2;
  run.config.model.width = 24;
  expect_same(run, {{2, 1, 1, true, "none", "1f1b", 1}, {2, 2, 2, true, "zero3", "1f1b", 1}});
  run.config.memory.recompute = "block";
  expect_same(run, {{2, 2, 1, true, "none", "zero-bubble", 1}});
}

/// Equal digests prove nothing if every rank does all the work.
TEST(Parts, WorkIsReallySplit) {
  torch_inside::install_gemm_counter();
  GrainedRun run;
  run.config.model.vocab = 68;  // of 67 one grain would have a token more
  run.config.data.eval_batches = 1;  // as many samples on each
  const nlohmann::json alone = run_on(run, {1, 1, 1, false, "none", "1f1b", 1});
  const nlohmann::json shared = run_on(run, {2, 1, 2, true, "none", "1f1b", 1});
  for (const auto& rank : shared["ranks"]) {
    EXPECT_EQ(rank["gemm_flops"].get<int64_t>() * 4, alone["ranks"][0]["gemm_flops"]);
    EXPECT_EQ(rank["samples"].get<int64_t>() * 2, alone["ranks"][0]["samples"]);
  }
}

/// What a mesh has saved is the model of one rank: read back, it has the digest that it states.
TEST(Parts, AMeshSavesTheWholeModel) {
  GrainedRun run;
  run.config.parallel.tensor = 2;
  run.config.parallel.pipeline = 2;
  run.config.parallel.shard = "zero3";
  const testing::TempFolder out;
  net::run_on_threads(8, [&](const std::shared_ptr<net::Group>& world) {
    Trainer trainer({.config = run.config, .run_folder = out.path(), .console_fd = -1},
                    world->endpoint());
    trainer.run();
  });
  const LoadedModel loaded = load_model(out.file("final.safetensors"));
  EXPECT_EQ(loaded.params->digest().text(), loaded.info.param_digest);
  EXPECT_EQ(loaded.tensor.grains, 2);
  // The same model in one grain has the same parameters.
  EXPECT_NO_THROW(load_model(out.file("final.safetensors"), /*in_grains=*/false));
}

}  // namespace
}  // namespace lockstep
