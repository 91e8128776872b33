// The program of a stage: what follows from its schedule for gradients, on every data-parallel
// rank.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/plan/run_layout.h"
#include "lockstep/plan/step_program.h"

namespace lockstep::plan {
namespace {

/// What a stage of a decoder has, roughly: a few tensors a layer, and a tied table at both ends.
ParamTable table_of(const TrainConfig& config, int stage) {
  std::vector<ParamDeclaration> declared;
  const std::vector<ModelChunk> chunks = chunks_of(config, stage);
  for (size_t c = 0; c < chunks.size(); ++c) {
    const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
      declared.push_back({.name = name,
                          .shape = std::move(shape),
                          .init = {},
                          .slice = {},
                          .chunk = static_cast<int>(c)});
    };
    if (chunks[c].embeds) add("wte.weight", {40, 8});
    for (int64_t layer = chunks[c].first_layer; layer < chunks[c].last_layer; ++layer) {
      add("h." + std::to_string(layer) + ".w", {16, 8});
      add("h." + std::to_string(layer) + ".b", {16});
    }
    if (chunks[c].heads) add("lm_head.weight", {40, 8});
  }
  return make_param_table(declared, {{"lm_head.weight", "wte.weight"}}, /*is_part=*/true);
}

bool is_collective(const Step& step) {
  switch (step.op) {
    case StepOp::gather:
    case StepOp::reduce:
    case StepOp::across:
    case StepOp::publish:
      return true;
    default:
      return false;
  }
}

struct Layout {
  const char* schedule;
  int chunks;
  int stages;
  int data;
  const char* shard;
};

TrainConfig config_of(const Layout& layout, int grains) {
  TrainConfig config;
  config.model.layers = 16;
  config.data.global_batch = 16;
  config.data.micro_batch = 1;
  config.numerics.grains = grains;
  config.comm.bucket_mb = 0.0005;
  config.comm.first_bucket_mb = 0.0002;
  config.parallel.schedule = layout.schedule;
  config.parallel.chunks = layout.chunks;
  config.parallel.pipeline = layout.stages;
  config.parallel.shard = layout.shard;
  return config;
}

std::vector<Layout> layouts() {
  std::vector<Layout> all;
  const std::vector<std::pair<const char*, int>> schedules = {
      {"gpipe", 1}, {"1f1b", 1}, {"interleaved", 2}, {"zero-bubble", 1}, {"zero-bubble-v", 1}};
  for (const auto& [schedule, chunks] : schedules) {
    for (const int stages : {1, 2, 3, 4}) {
      for (const int data : {1, 2, 3, 4, 5}) {
        for (const char* shard : {"none", "zero1", "zero2", "zero3"}) {
          all.push_back({schedule, chunks, stages, data, shard});
        }
      }
    }
  }
  return all;
}

/// For every layout that the rules allow.
void on_programs(const std::function<void(const StepInputs&, const std::string& what)>& see) {
  for (const Layout& layout : layouts()) {
    for (const int grains : {8, 4}) {
      const TrainConfig config = config_of(layout, grains);
      try {
        check(config, layout.stages * layout.data);
      } catch (const UsageError&) {
        continue;
      }
      if (!is_pipelined(config)) continue;
      for (int stage = 0; stage < layout.stages; ++stage) {
        const StepInputs inputs =
            step_inputs_of(config, table_of(config, stage), layout.data, stage);
        see(inputs, std::string(layout.schedule) + " stage " + std::to_string(stage) + " of " +
                        std::to_string(layout.stages) + ", " + std::to_string(layout.data) +
                        " data ranks, " + layout.shard + ", " + std::to_string(grains) + " grains");
      }
    }
  }
}

TEST(PipelineProgram, DataRanksIssueTheSameCollectives) {
  int programs = 0;
  on_programs([&](const StepInputs& inputs, const std::string& what) {
    std::vector<std::string> first;
    for (int rank = 0; rank < inputs.leaves.ranks; ++rank) {
      std::vector<std::string> collectives;
      for (Step step : pipeline_program(inputs, rank).steps) {
        step.leaf = -1;  // whose it is does not matter
        if (is_collective(step)) collectives.push_back(text(step));
      }
      if (rank == 0) first = collectives;
      EXPECT_EQ(collectives, first) << what << " rank " << rank;
      ++programs;
    }
  });
  EXPECT_GT(programs, 500);
}

TEST(PipelineProgram, EveryLeafJoinsEveryBucketOnceAndWhenItIsComplete) {
  on_programs([&](const StepInputs& inputs, const std::string& what) {
    const bool by_round = inputs.shards.options.stage >= Shard::zero2;
    for (int rank = 0; rank < inputs.leaves.ranks; ++rank) {
      std::map<std::pair<int, int>, int> completed;  // chunk, leaf
      std::map<std::pair<int, int>, int> joined;     // bucket, leaf
      std::map<std::pair<int, int>, int> tied;       // param, leaf
      for (const Step& step : pipeline_program(inputs, rank).steps) {
        if (step.op == StepOp::complete) ++completed[{step.chunk, step.leaf}];
        if (step.op == StepOp::tie) {
          ++tied[{step.param, step.leaf}];
          const Param& param = inputs.table.params[static_cast<size_t>(step.param)];
          for (const int chunk : param.use_chunks) {
            EXPECT_EQ((completed[{chunk, step.leaf}]), 1) << what << ": " << text(step);
          }
        }
        const bool joins = by_round ? step.op == StepOp::reduce && step.leaf >= 0 &&
                                          step.node.contains({step.leaf, step.leaf + 1})
                                    : step.op == StepOp::fold;
        if (!joins) continue;
        ++joined[{step.bucket, step.leaf}];
        for (const int p : inputs.buckets.buckets[static_cast<size_t>(step.bucket)].params) {
          const Param& param = inputs.table.params[static_cast<size_t>(p)];
          for (const int chunk : param.use_chunks) {
            EXPECT_EQ((completed[{chunk, step.leaf}]), 1) << what << ": " << text(step);
          }
          EXPECT_EQ((tied[{p, step.leaf}]), param.is_across ? 1 : 0) << what;
        }
      }
      const std::vector<int> leaves = inputs.leaves.leaves_of(rank);
      EXPECT_EQ(joined.size(), leaves.size() * inputs.buckets.buckets.size()) << what;
      for (const auto& [key, times] : joined) EXPECT_EQ(times, 1) << what;
    }
  });
}

TEST(PipelineProgram, EveryBucketIsReducedByEveryNodeOnce) {
  on_programs([&](const StepInputs& inputs, const std::string& what) {
    for (int rank = 0; rank < inputs.leaves.ranks; ++rank) {
      std::map<int, int> leaves;  // by bucket: those of the reduced nodes
      std::map<int, int> open;    // reductions that have not settled
      for (const Step& step : pipeline_program(inputs, rank).steps) {
        if (step.op == StepOp::reduce) {
          leaves[step.bucket] += step.node.size() > 0 ? step.node.size() : inputs.batch.grains;
          ++open[step.bucket];
        }
        if (step.op == StepOp::settle) --open[step.bucket];
      }
      for (size_t b = 0; b < inputs.buckets.buckets.size(); ++b) {
        EXPECT_EQ(leaves[static_cast<int>(b)], inputs.batch.grains) << what;
        const bool settles = inputs.shards.options.stage >= Shard::zero2;
        EXPECT_TRUE(!settles || open[static_cast<int>(b)] == 0) << what;
      }
    }
  });
}

TEST(PipelineProgram, UnitsAreGatheredOnceAndFreed) {
  on_programs([&](const StepInputs& inputs, const std::string& what) {
    if (!inputs.shards.gathers()) return;
    std::map<int, int> gathered;
    bool computed = false;
    for (const Step& step : pipeline_program(inputs, 0).steps) {
      computed |= step.op == StepOp::forward;
      if (step.op == StepOp::gather) {
        EXPECT_FALSE(computed) << what;
        EXPECT_EQ(++gathered[step.unit], 1);
      } else if (step.op == StepOp::release) {
        EXPECT_EQ(--gathered[step.unit], 0) << what;
      }
    }
    EXPECT_EQ(gathered.size(), inputs.shards.units.size());
    for (const auto& [unit, count] : gathered) EXPECT_EQ(count, 0) << what;
  });
}

TEST(PipelineProgram, ReadsAsTheHeaderShowsIt) {
  TrainConfig config;
  config.model.layers = 2;
  config.data.global_batch = 2;
  config.data.micro_batch = 1;
  config.parallel.pipeline = 2;
  ParamTable table = make_param_table({{.name = "h.1.w", .shape = {16, 8}, .init = {}}}, {}, true);
  EXPECT_EQ(text(pipeline_program(step_inputs_of(config, table, 1, 1), 0)),
            "rank 0:\n"
            "  recv_forward 0.0\n"
            "  forward 0.0  backward 0.0  send_backward 0.0  complete l0  fold b0 l0  "
            "recv_forward 1.0\n"
            "  forward 1.0  backward 1.0  send_backward 1.0  complete l1  fold b0 l1  reduce b0\n"
            "  loss  norm  update\n");
}

}  // namespace
}  // namespace lockstep::plan
