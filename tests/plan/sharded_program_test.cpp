#include <algorithm>
#include <map>
#include <set>

#include "lockstep/plan/step_program.h"
#include "tests/plan/property.h"
#include "tests/plan/tree_reference.h"

namespace lockstep::plan {
namespace {

/// A root with a tied weight and three layers.
StepInputs inputs_of(const ShardOptions& options, int grains, int micro_batches = 1,
                     bool tied = true) {
  const auto param = [](const std::string& name, std::vector<int64_t> shape) {
    return ParamDeclaration{.name = name, .shape = std::move(shape), .trainable = true, .init = {}};
  };
  StepInputs inputs;
  inputs.batch = plan_batch(grains * micro_batches, 1, grains);
  inputs.leaves = plan_leaves(
      grains, options.ranks * options.replicas,
      options.stage >= Shard::zero2 ? LeafAssignment::round_robin : LeafAssignment::contiguous,
      options.replicas);
  std::vector<ParamDeclaration> declared = {param("wte", {50, 31})};
  for (int layer = 0; layer < 3; ++layer) {
    declared.push_back(param("h." + std::to_string(layer) + ".fc", {40, 31}));
    declared.push_back(param("h." + std::to_string(layer) + ".bias", {31}));
  }
  declared.push_back(param("head", {50, 31}));
  inputs.table =
      tied ? make_param_table(declared, {{"head", "wte"}}) : make_param_table(declared, {});
  inputs.buckets = options.stage == Shard::zero3 ? plan_unit_buckets(inputs.table)
                                                 : plan_buckets(inputs.table, 1 << 14, 1 << 14);
  inputs.shards = plan_shards(inputs.table, inputs.buckets, options);
  return inputs;
}

TEST(ShardedProgram, OfZero1ReducesToOwnersAndPublishes) {
  EXPECT_EQ(text(data_parallel_program(inputs_of({.stage = Shard::zero1, .ranks = 2}, 4), 0)),
            "rank 0:\n"
            "  forward 0.0  backward 0.0  fold b0 l0  fold_use p0 l0  fold b1 l0\n"
            "  forward 1.0  backward 1.0  fold b0 l1  reduce b0 (0,4)  fold_use p0 l1  fold b1 l1  "
            "reduce b1 (0,4)\n"
            "  loss  norm  update  publish b0  publish b1\n");
}

/// Trust ratios: two sums a node, of a tree for each parameter, come together before the update.
TEST(ShardedProgram, OfAnOptimizerWithRatiosTakesTheirNorms) {
  for (const OptimizerName& optimizer : kOptimizers) {
    StepInputs inputs = inputs_of({.stage = Shard::zero1, .ranks = 2}, 2);
    const GroupBytes without = planned_bytes(inputs, 0);
    inputs.optimizer = parse_optimizer(optimizer.name);
    const std::string program = text(data_parallel_program(inputs, 0));
    const char* const end = optimizer.has_ratios ? "norm  ratios  update" : "norm  update";
    EXPECT_NE(program.find(end), std::string::npos) << program;
    const NormPlan norms = plan_norm(inputs.table, inputs.shards, NormSums::by_parameter);
    EXPECT_EQ(planned_bytes(inputs, 0).shard - without.shard,
              optimizer.has_ratios ? 16 * norms.counts()[1] : 0)
        << optimizer.name;
  }
}

TEST(ShardedProgram, OfZero3GathersEachUnitTwiceARound) {
  const StepInputs inputs = inputs_of({.stage = Shard::zero3, .ranks = 2}, 2);
  EXPECT_EQ(text(data_parallel_program(inputs, 0)),
            "rank 0:\n"
            "  forward 0.0  gather u3  touch u3  gather u2  touch u2  gather u1  touch u1  "
            "release u2  gather u0  touch u0  release u1  backward 0.0  gather u1  touch u0  "
            "touch u1  reduce b0 (0,2)  release u0  gather u2  touch u2  reduce b1 (0,2)  "
            "settle b0 (0,2)  release u1  reduce b2 (0,2)  settle b1 (0,2)  release u2  "
            "release u3  fold_use p0 l0  reduce b3 (0,2)  settle b2 (0,2)  settle b3 (0,2)\n"
            "  loss  norm  update\n");
}

/// A phantom round has the same collectives, and nothing is computed.
TEST(ShardedProgram, APhantomRoundTakesPartInEveryCollective) {
  const StepInputs inputs = inputs_of({.stage = Shard::zero3, .ranks = 3}, 4);
  const StepProgram last = data_parallel_program(inputs, 2);
  int forwards = 0, gathers = 0, phantoms = 0;
  for (const Step& step : last.steps) {
    forwards += step.op == StepOp::forward ? 1 : 0;
    gathers += step.op == StepOp::gather ? 1 : 0;
    phantoms += step.op == StepOp::phantom ? 1 : 0;
  }
  EXPECT_EQ(forwards, 1);
  EXPECT_EQ(phantoms, 1) << "what ends the backward before it";
  EXPECT_EQ(gathers, 2 * (4 + 2)) << "two rounds: four units forward, two again backward";
}

bool is_collective(StepOp op) {
  return op == StepOp::gather || op == StepOp::reduce || op == StepOp::across ||
         op == StepOp::publish || op == StepOp::loss || op == StepOp::norm;
}

/// What the ranks of each group see as their order of collectives.
std::vector<Step> collectives(const StepProgram& program, bool units) {
  std::vector<Step> found;
  for (const Step& step : program.steps) {
    const bool on_units = step.op == StepOp::gather || step.op == StepOp::publish;
    if (is_collective(step.op) && on_units == units) found.push_back(step);
  }
  return found;
}

TEST(ShardedProgram, RanksOfAReplicaIssueTheSameCollectives) {
  for (const Shard stage : {Shard::zero1, Shard::zero2, Shard::zero3}) {
    for (const int replicas : {1, 2, 3}) {
      for (int ranks = 1; ranks <= 5; ++ranks) {
        for (int grains = ranks * replicas; grains <= 17; ++grains) {
          const StepInputs inputs = inputs_of(
              {.stage = stage, .ranks = ranks, .replicas = replicas}, grains, /*micro_batches=*/2);
          for (int rank = 0; rank < ranks * replicas; ++rank) {
            const int first = rank / ranks * ranks;
            for (const bool units : {true, false}) {
              ASSERT_EQ(collectives(data_parallel_program(inputs, rank), units),
                        collectives(data_parallel_program(inputs, first), units));
            }
          }
        }
      }
    }
  }
}

/// Carries out the reductions of one element on numbers for the leaves, as the stores do: each
/// node summed over the ranks' terms, owners fold slices, replicas meet.
float carried_out(const StepInputs& inputs, const std::vector<float>& gradients) {
  const int ranks = inputs.shards.options.ranks;
  std::vector<std::pair<LeafRange, float>> kept;
  for (int replica = 0; replica < inputs.shards.options.replicas; ++replica) {
    const LeafRounds rounds = leaf_rounds(inputs, replica * ranks);
    std::vector<float> levels(static_cast<size_t>(rounds.levels));
    const auto level = [&](int index) -> float& { return levels.at(static_cast<size_t>(index)); };
    for (const auto& round : rounds.rounds) {
      // The reductions of a round are under way together; then each settles.
      for (const RoundNode& node : round) {
        const SumPlan sum = node_plan(inputs, replica * ranks, node.leaves);
        std::vector<float> terms;
        for (const TermHolder& term : sum.terms) {
          terms.push_back(reference_sum(gradients, term.leaves.lo, term.leaves.hi));
        }
        for (const AddStep step : sum.additions) {
          terms[static_cast<size_t>(step.into)] += terms[static_cast<size_t>(step.from)];
        }
        level(node.level) = terms.at(0);
      }
      for (const RoundNode& node : round) {
        for (const AddStep step : node.additions) level(step.into) += level(step.from);
      }
    }
    for (const LeafRounds::Kept& node : rounds.kept) {
      kept.emplace_back(node.leaves, level(node.level));
    }
    EXPECT_EQ(rounds.kept.at(0).level, 0);
  }
  std::vector<LeafRange> ranges;
  for (const auto& [range, value] : kept) ranges.push_back(range);
  for (const AddStep step : evaluation(inputs.batch.grains, ranges)) {
    kept[static_cast<size_t>(step.into)].second += kept[static_cast<size_t>(step.from)].second;
  }
  return kept.at(0).second;
}

TEST(ShardedProgram, GivesTheBitsOfTheTreeInEveryLayout) {
  for (const Shard stage : {Shard::zero1, Shard::zero2}) {
    for (const int replicas : {1, 2, 3}) {
      for (int ranks = 1; ranks <= 6; ++ranks) {
        for (int grains = ranks * replicas; grains <= 24; ++grains) {
          const auto gradients =
              unlike_values<float>(static_cast<size_t>(grains), static_cast<unsigned>(grains));
          const StepInputs inputs =
              inputs_of({.stage = stage, .ranks = ranks, .replicas = replicas}, grains);
          ASSERT_EQ(bits(carried_out(inputs, gradients)), bits(reference_sum(gradients, 0, grains)))
              << grains << " leaves, " << ranks << " ranks, " << replicas << " replicas";
        }
      }
    }
  }
}

/// The stack of an owner holds few slices: the levels of a binary counter.
TEST(LeafRounds, HoldAsManySlicesAsABinaryCounter) {
  for (const int ranks : {1, 2, 4, 8}) {
    for (int rounds = 1; rounds <= 16; ++rounds) {
      const LeafRounds plan =
          plan_leaf_rounds(plan_leaves(ranks * rounds, ranks, LeafAssignment::round_robin),
                           {0, ranks * rounds}, ranks);
      EXPECT_LE(plan.levels, std::bit_width(static_cast<unsigned>(rounds)) + 1);
      EXPECT_EQ(plan.kept, (std::vector<LeafRounds::Kept>{{{0, ranks * rounds}, 0}}));
    }
  }
  EXPECT_EQ(plan_leaf_rounds(plan_leaves(4, 4, LeafAssignment::round_robin), {0, 4}, 4).levels, 1)
      << "one leaf a rank: the sum itself";
}

int64_t state_bytes_moved(const StepInputs& inputs) {
  int64_t bytes = 0;
  for (int rank = 0; rank < inputs.leaves.ranks; ++rank) {
    const GroupBytes planned = planned_bytes(inputs, rank);
    bytes += planned.shard + planned.gather + planned.replica;
    const NormPlan norm = plan_norm(inputs.table, inputs.shards);
    const std::vector<int64_t> counts = norm.counts();
    for (int r = 0; r < inputs.shards.options.ranks; ++r) {
      if (r != rank % inputs.shards.options.ranks) bytes -= 8 * counts[static_cast<size_t>(r)];
    }
  }
  return bytes;
}

/// All ranks together: 2 (N-1) P of stages 1 and 2, 3 (N-1) P of stage 3 where every unit is
/// gathered again for backward.
TEST(ShardedBytes, OfOneLeafARankAreTheClosedForms) {
  for (const int ranks : {1, 2, 4, 8}) {
    for (const Shard stage : {Shard::zero1, Shard::zero2, Shard::zero3}) {
      const StepInputs inputs = inputs_of(
          {.stage = stage, .ranks = ranks, .reshard = Reshard::always}, ranks, 1, /*tied=*/false);
      const int64_t times = stage == Shard::zero3 ? 3 : 2;
      EXPECT_EQ(state_bytes_moved(inputs), times * (ranks - 1) * inputs.buckets.numel * 4)
          << ranks << " ranks";
    }
  }
}

/// What backward needs at once stays: the root and the last layer are gathered once.
TEST(ShardedBytes, OfUnitsThatStayAreGatheredOnce) {
  const StepInputs inputs = inputs_of({.stage = Shard::zero3, .ranks = 4}, 4, 1, /*tied=*/false);
  const int64_t stays = inputs.buckets.buckets[0].numel + inputs.buckets.buckets[3].numel;
  EXPECT_EQ(state_bytes_moved(inputs), 3 * 4 * (3 * inputs.buckets.numel - stays));
}

/// Inside a replica of s ranks as with s ranks alone; across, an all-reduce of a rank's slices.
TEST(ShardedBytes, OfReplicasAreThoseInsideAndAcross) {
  const StepInputs inputs = inputs_of(
      {.stage = Shard::zero3, .ranks = 2, .replicas = 2, .reshard = Reshard::always}, 4, 1, false);
  int64_t across = 0;
  for (int rank = 0; rank < 4; ++rank) across += planned_bytes(inputs, rank).replica;
  const int64_t bytes = inputs.buckets.numel * 4;
  EXPECT_EQ(across, 2 * bytes) << "2 (R-1)/R of each half of the elements, on four ranks";
  EXPECT_EQ(state_bytes_moved(inputs) - across, 2 * 3 * bytes);
}

}  // namespace
}  // namespace lockstep::plan
