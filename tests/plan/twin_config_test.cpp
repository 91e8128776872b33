#include "lockstep/plan/twin_config.h"

#include <random>

#include "lockstep/base/error.h"
#include "lockstep/plan/batch_plan.h"
#include "lockstep/plan/pipeline_csv.h"
#include "lockstep/plan/pipeline_schedule.h"
#include "lockstep/plan/run_layout.h"
#include "tests/plan/property.h"

namespace lockstep::plan {
namespace {

struct Job {
  TrainConfig config;
  int ranks = 1;
};

class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}
  template <class T>
  T of(std::vector<T> values) {
    return values[random_() % values.size()];
  }
  bool one_in(unsigned n) { return random_() % n == 0; }

 private:
  std::mt19937 random_;
};

Job drawn(Draw& draw) {
  Job run;
  TrainConfig& c = run.config;
  auto& parallel = c.parallel;
  const std::string schedule =
      draw.of<std::string>({"1f1b", "gpipe", "interleaved", "zero-bubble", "zero-bubble-v"});
  parallel.pipeline = draw.of<int64_t>({1, 1, 2, 3, 4});
  if (parallel.pipeline > 1) parallel.schedule = schedule;
  if (parallel.schedule == "interleaved") parallel.chunks = draw.of<int64_t>({2, 3});
  parallel.tensor = draw.of<int64_t>({1, 1, 2, 3});
  parallel.sequence = draw.one_in(2);
  c.numerics.tensor_grains = draw.of<int64_t>({0, 0, parallel.tensor, 2 * parallel.tensor, 12});
  const int data = draw.of<int>({1, 2, 3, 4});
  parallel.shard = draw.of<std::string>({"none", "zero1", "zero2", "zero3"});
  if (parallel.shard != "none" && data % 2 == 0 && draw.one_in(2)) parallel.replicas = 2;
  if (parallel.shard == "zero3") parallel.prefetch = draw.of<int64_t>({0, 1, 2});
  run.ranks = data * static_cast<int>(parallel.pipeline * parallel.tensor);

  c.model.family = draw.of<std::string>({"gpt2", "gpt2", "llama", "mlp"});
  if (c.model.family != "gpt2") c.model.tied = false;
  if (c.model.family == "llama") c.model.bias = false;
  if (c.model.family == "llama" && draw.one_in(2)) c.model.kv_heads = draw.of<int64_t>({6, 12, 1});
  c.model.heads = draw.of<int64_t>({12, 24});
  c.model.width = c.model.heads * draw.of<int64_t>({2, 8, 64});
  c.model.ffn = draw.of<int64_t>({0, 12, 96});
  c.model.context = draw.of<int64_t>({12, 384});
  c.model.vocab = draw.of<int64_t>({0, 5, 1000});
  c.model.layers = draw.of<int64_t>({1, 4, 8, 13, 24});
  if (parallel.pipeline == 2 && c.model.layers == 8 && parallel.chunks == 1 &&
      parallel.schedule != "zero-bubble-v") {
    parallel.stages = draw.of<std::string>({"", "5,3", "1,7", "4,4"});
  }
  c.data.micro_batch = draw.of<int64_t>({1, 3, 4});
  c.data.global_batch = c.data.micro_batch * draw.of<int64_t>({4, 6, 12, 16, 48});
  c.numerics.grains = draw.of<int64_t>({0, 0, 4, 6});
  c.memory.recompute = draw.of<std::string>({"none", "selective", "block"});
  if (c.memory.recompute == "selective") c.numerics.kernels = "aten";
  c.memory.offload = draw.of<std::string>({"none", "none", "disk"});
  c.optim.grad_clip = draw.of<double>({0, 1});
  return run;
}

bool passes(const TrainConfig& config, int ranks) {
  try {
    check(config, ranks);
    return true;
  } catch (const UsageError&) {
    return false;
  }
}

void expect_same_identity(const TrainConfig& a, const TrainConfig& b) {
  EXPECT_EQ(batch_of(a), batch_of(b));
  EXPECT_EQ(tensor_grains_of(a), tensor_grains_of(b));
  EXPECT_EQ(to_json(a)["model"], to_json(b)["model"]);
  EXPECT_EQ(to_json(a)["optim"], to_json(b)["optim"]);
  EXPECT_EQ(to_json(a)["data"], to_json(b)["data"]);
  EXPECT_EQ(a.run.seed, b.run.seed);
}

void expect_same_layout(const Job& run, const TrainConfig& twin) {
  const TrainConfig& config = run.config;
  nlohmann::json parallel = to_json(config)["parallel"];
  parallel["stages"] = twin.parallel.stages;
  EXPECT_EQ(to_json(twin)["parallel"], parallel);
  EXPECT_EQ(to_json(twin)["memory"]["recompute"], to_json(config)["memory"]["recompute"]);
  EXPECT_EQ(twin.memory.offload, config.memory.offload);
  EXPECT_EQ(tensor_grains_of(twin), tensor_grains_of(config));
  EXPECT_EQ(batch_of(twin).grains, batch_of(config).grains);
  for (int rank = 0; rank < run.ranks; ++rank) {
    const RankPlace at = place_in(config, run.ranks, rank);
    const auto leaves = [&](const TrainConfig& c) {
      return leaves_of(c, data_ranks(c, run.ranks)).leaves_of(at.data);
    };
    EXPECT_EQ(leaves(twin), leaves(config));
    const std::vector<ModelChunk> pieces = chunks_of(config, at.stage);
    const std::vector<ModelChunk> small = chunks_of(twin, at.stage);
    ASSERT_EQ(small.size(), pieces.size());
    for (size_t i = 0; i < pieces.size(); ++i) {
      EXPECT_EQ(small[i].embeds, pieces[i].embeds);
      EXPECT_EQ(small[i].heads, pieces[i].heads);
    }
  }
}

TEST(TwinConfig, EveryRunThatFitsHasATwinOfItsLayoutAndOneAlone) {
  Draw draw(7);
  int fitted = 0;
  int pipelined = 0;
  int divided = 0;
  for (int i = 0; i < 1000; ++i) {
    const Job run = drawn(draw);
    if (!passes(run.config, run.ranks)) continue;
    SCOPED_TRACE(to_json(run.config).dump() + " on " + std::to_string(run.ranks));
    ++fitted;
    pipelined += run.config.parallel.pipeline > 1 ? 1 : 0;
    divided += run.config.parallel.tensor > 1 ? 1 : 0;
    TrainConfig twin;
    ASSERT_NO_THROW(twin = twin_of(run.config, run.ranks));
    expect_same_layout(run, twin);
    const TrainConfig alone = alone_of(twin);
    ASSERT_NO_THROW(check(alone, 1));
    EXPECT_EQ(alone.parallel.tensor * alone.parallel.pipeline, 1);
    EXPECT_EQ(alone.memory.recompute + alone.memory.offload, "nonenone");
    expect_same_identity(twin, alone);
    EXPECT_LE(parameter_count(twin) / twin.model.layers, 150'000);
    EXPECT_LE(twin.model.layers, run.config.model.layers);
    if (HasFailure()) return;
  }
  EXPECT_GE(fitted, 200);
  EXPECT_GE(pipelined, 50);
  EXPECT_GE(divided, 50);
}

TEST(TwinConfig, IsSmallAndOdd) {
  TrainConfig run = preset("nano8");
  run.parallel.tensor = 2;
  run.parallel.pipeline = 2;
  run.data.global_batch = 64;  // 8 leaves of 2 micro-batches
  const TrainConfig twin = twin_of(run, 8);
  EXPECT_EQ(twin.model.layers, 4);
  EXPECT_EQ(twin.model.heads, 4);
  EXPECT_EQ(twin.model.width, 24);
  EXPECT_EQ(twin.model.ffn, 20);
  EXPECT_EQ(twin.model.context, 10);
  EXPECT_EQ(twin.model.vocab, 61);
  EXPECT_EQ(twin.data.global_batch, 32);
  EXPECT_EQ(batch_of(twin).micro_batches_per_grain, 2);
  EXPECT_EQ(twin.optim.warmup_steps, 0);
  EXPECT_LT(twin.optim.grad_clip, run.optim.grad_clip);
  EXPECT_NEAR(twin.model.init_std, 0.02 * std::sqrt(128.0 / 24), 1e-9);
  EXPECT_EQ(alone_of(twin).numerics.tensor_grains, 2);
  EXPECT_EQ(alone_of(run).numerics.tensor_grains, 2) << "of a run that says auto";
}

TEST(TwinConfig, KeepsAnUnevenCut) {
  TrainConfig run = preset("nano8");
  run.parallel.pipeline = 3;
  const auto sizes = [&](const TrainConfig& config) {
    std::vector<int64_t> found;
    for (int stage = 0; stage < 3; ++stage) {
      for (const ModelChunk& piece : chunks_of(config, stage)) {
        found.push_back(piece.last_layer - piece.first_layer);
      }
    }
    return found;
  };
  EXPECT_EQ(sizes(twin_of(run, 3)), (std::vector<int64_t>{2, 2, 1})) << "of 3 3 2";
  run.parallel.stages = "1,4,3";
  const TrainConfig twin = twin_of(run, 3);
  EXPECT_EQ(sizes(twin), (std::vector<int64_t>{1, 2, 2}));
  EXPECT_EQ(twin.parallel.stages, "1,2,2");
  EXPECT_EQ(alone_of(twin).parallel.stages, "");
}

TEST(TwinConfig, KeepsTheMicroBatchesOfAScheduleFromAFile) {
  TrainConfig run = preset("nano");
  run.parallel.pipeline = 2;
  run.numerics.grains = 1;
  run.data.global_batch = 20;  // 5 micro-batches
  run.schedule_csv =
      pipeline_csv(plan_pipeline({.schedule = "gpipe", .stages = 2, .micro_batches = 5}));
  run.parallel.schedule = "mine.csv";
  ASSERT_NO_THROW(check(run, 2));
  const TrainConfig twin = twin_of(run, 2);
  EXPECT_EQ(batch_of(twin).micro_batches_per_grain, 5);
  EXPECT_EQ(alone_of(twin).schedule_csv, "");
}

TEST(TwinConfig, DropoutStaysAndGroupsOfHeadsToo) {
  TrainConfig run = preset("nano");
  run.model.family = "llama";
  run.model.tied = false;
  run.model.bias = false;
  run.model.heads = 16;
  run.model.kv_heads = 4;
  run.model.dropout = 0;
  const TrainConfig twin = twin_of(run, 1);
  EXPECT_EQ(twin.model.kv_heads, 2);
  EXPECT_EQ(twin.model.heads, 4);
  EXPECT_EQ(twin.model.width, 24);
  EXPECT_EQ(twin.model.dropout, 0);
}

TEST(TwinConfig, RefusesAFamilyOfOnesOwn) {
  TrainConfig run = preset("nano");
  run.model.family = "mine";
  run.run.worker = "my_worker";
  try {
    twin_of(run, 1);
    FAIL() << "a family that nobody here knows was made small";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("model.family=gpt2"), std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep::plan
