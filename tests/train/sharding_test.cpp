// The same bits whatever is divided among the ranks, each rank's share, what moved and what is
// held.

#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/memory/counting_allocator.h"
#include "lockstep/plan/state_bytes.h"
#include "lockstep/torch_inside/gemm_counter.h"
#include "tests/train/run_bits.h"
#include "tests/train/tiny_run.h"

namespace lockstep {
namespace {

using testing::Bits;
using testing::bits_of;
using testing::expect_planned_bytes;
using testing::TinyRun;

using Setting = std::function<void(plan::TrainConfig&)>;

struct Named {
  const char* name;
  Setting set;
};

class Sharding : public ::testing::TestWithParam<Named> {
 protected:
  static void SetUpTestSuite() { torch_inside::install_gemm_counter(); }
};

TEST_P(Sharding, HasTheBitsOfOneRank) {
  TinyRun run;
  GetParam().set(run.config);
  const Bits alone = bits_of(run.run(1));
  for (const char* stage : {"zero1", "zero2", "zero3"}) {
    run.config.parallel.shard = stage;
    for (const int ranks : {1, 2, 3, 4}) {
      const nlohmann::json shared = run.run(ranks);
      EXPECT_EQ(bits_of(shared), alone) << stage << " on " << ranks << " ranks";
      expect_planned_bytes(shared);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Settings, Sharding,
    ::testing::Values(Named{"Plain", [](plan::TrainConfig& c) { c.comm.bucket_mb = 0.01; }},
                      Named{"Dropout", [](plan::TrainConfig& c) { c.model.dropout = 0.1; }},
                      Named{"Accumulation",
                            [](plan::TrainConfig& c) {
                              c.data.global_batch = 16;
                              c.numerics.grains = 4;
                            }},
                      Named{"EightLeaves", [](plan::TrainConfig& c) { c.data.micro_batch = 1; }},
                      Named{"FiveLeaves",
                            [](plan::TrainConfig& c) {
                              c.data.global_batch = 10;
                              c.numerics.grains = 5;
                            }},
                      Named{"Untied", [](plan::TrainConfig& c) { c.model.tied = false; }},
                      Named{"Mlp",
                            [](plan::TrainConfig& c) {
                              c.model.family = "mlp";
                              c.model.tied = false;
                            }}),
    [](const auto& info) { return info.param.name; });

TEST_F(Sharding, DepthPolicyAndOverlapChangeNoBit) {
  TinyRun run;
  run.config.model.layers = 4;
  const Bits alone = bits_of(run.run(1));
  run.config.parallel.shard = "zero3";
  for (const int64_t prefetch : {0, 1, 2, 5}) {
    for (const char* reshard : {"auto", "always", "never"}) {
      run.config.parallel.prefetch = prefetch;
      run.config.parallel.reshard_after_forward = reshard;
      const nlohmann::json shared = run.run(3);
      EXPECT_EQ(bits_of(shared), alone) << prefetch << " " << reshard;
      expect_planned_bytes(shared);
    }
  }
  run.config.comm.overlap = false;
  EXPECT_EQ(bits_of(run.run(3)), alone) << "no overlap";
}

TEST_F(Sharding, ReplicasOfShardsHaveTheBitsOfOneRank) {
  TinyRun run;
  run.config.data.micro_batch = 1;  // 8 leaves
  const Bits alone = bits_of(run.run(1));
  for (const char* stage : {"zero1", "zero2", "zero3"}) {
    run.config.parallel.shard = stage;
    for (const auto& [ranks, replicas] :
         std::vector<std::pair<int, int>>{{4, 2}, {6, 2}, {6, 3}, {3, 3}}) {
      run.config.parallel.replicas = replicas;
      const nlohmann::json shared = run.run(ranks);
      EXPECT_EQ(bits_of(shared), alone)
          << stage << ": " << replicas << " replicas on " << ranks << " ranks";
      expect_planned_bytes(shared);
    }
  }
}

/// Equal digests prove nothing if every rank does all the work.
TEST_F(Sharding, WorkIsReallySplit) {
  TinyRun run;
  const nlohmann::json alone = run.run(1);
  for (const char* stage : {"zero1", "zero2", "zero3"}) {
    run.config.parallel.shard = stage;
    for (const int ranks : {2, 4}) {
      const nlohmann::json shared = run.run(ranks);
      for (const auto& rank : shared["ranks"]) {
        EXPECT_EQ(rank["samples"].get<int64_t>() * ranks, alone["ranks"][0]["samples"]);
        EXPECT_EQ(rank["gemm_flops"].get<int64_t>() * ranks, alone["ranks"][0]["gemm_flops"]);
      }
    }
  }
  run.config.parallel.shard = "zero3";
  const nlohmann::json three = run.run(3);  // leaves 0 and 3, 1, 2
  EXPECT_EQ(three["ranks"][0]["samples"], 16);
  EXPECT_EQ(three["ranks"][1]["samples"], 8);
  EXPECT_EQ(three["ranks"][2]["samples"], 8);
}

TEST_F(Sharding, ExecutesTheProgram) {
  TinyRun run;
  run.config.comm.bucket_mb = 0.004;
  for (const char* stage : {"zero1", "zero2", "zero3"}) {
    run.config.parallel.shard = stage;
    run.run_on(3, [&](Trainer& trainer, int rank) {
      trainer.run();
      std::vector<plan::Step> executed = trainer.runner().executed();
      std::vector<plan::Step> planned =
          plan::data_parallel_program(trainer.step_inputs(), rank).steps;
      // Lanes run beside each other; in each the order is the program's.
      const auto is_of_units = [](const plan::Step& step) { return step.unit >= 0; };
      std::stable_partition(executed.begin(), executed.end(), is_of_units);
      std::stable_partition(planned.begin(), planned.end(), is_of_units);
      const auto lines = [rank](std::vector<plan::Step> steps) {
        return plan::text({.rank = rank, .steps = std::move(steps)});
      };
      EXPECT_EQ(lines(executed), lines(planned)) << stage;
    });
  }
}

TEST_F(Sharding, GathersNoMoreUnitsThanAllowed) {
  TinyRun run;
  run.config.model.layers = 6;
  run.config.parallel.shard = "zero3";
  for (const int64_t prefetch : {0, 1, 3}) {
    run.config.parallel.prefetch = prefetch;
    run.run_on(2, [&](Trainer& trainer, int) {
      trainer.run();
      EXPECT_EQ(trainer.params().units()->most_gathered(), prefetch + 1);
    });
  }
}

/// Three witnesses: the closed forms of state, the plan, and what the accounts counted.
TEST_F(Sharding, HoldsWhatThePlanSays) {
  memory::install_counting_allocator();
  TinyRun run;
  run.config.model.layers = 3;
  run.config.model.width = 64;
  run.config.data.micro_batch = 1;  // 8 leaves
  for (const char* stage : {"none", "zero1", "zero2", "zero3"}) {
    run.config.parallel.shard = stage;
    for (const int ranks : {1, 2, 3, 4, 8}) {
      std::vector<plan::StateBytes> planned(static_cast<size_t>(ranks));
      nlohmann::json summary;
      run.run_on(ranks, [&](Trainer& trainer, int rank) {
        planned[static_cast<size_t>(rank)] = plan::planned_state(trainer.step_inputs(), rank);
        const TrainResult result = trainer.run();
        if (rank == 0) summary = nlohmann::json::parse(result.summary);
      });
      for (const auto& rank : summary["ranks"]) {
        const plan::StateBytes& plan = planned[rank["rank"].get<size_t>()];
        const auto& peak = rank["peak_bytes"];
        EXPECT_EQ(peak["parameters"], plan.parameters) << stage << " " << ranks;
        EXPECT_EQ(peak["optimizer"], plan.optimizer) << stage << " " << ranks;
        EXPECT_EQ(peak["gathered"], plan.gathered) << stage << " " << ranks;
        EXPECT_EQ(peak["gradients"], plan.gradients + plan.leaf + plan.side)
            << stage << " " << ranks << " " << rank["rank"];
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
