#include "lockstep/plan/step_program.h"

#include <map>
#include <set>

#include "tests/plan/property.h"
#include "tests/plan/tree_reference.h"

namespace lockstep::plan {
namespace {

/// Two buckets: the tied weight in the last, since its declaration comes first.
StepInputs inputs_of(int grains, int ranks, int micro_batches = 1, bool overlap = true) {
  const auto param = [](const char* name, std::vector<int64_t> shape) {
    return ParamDeclaration{.name = name, .shape = std::move(shape), .trainable = true, .init = {}};
  };
  StepInputs inputs;
  inputs.batch = plan_batch(grains * micro_batches, 1, grains);
  inputs.leaves = plan_leaves(grains, ranks, LeafAssignment::contiguous);
  inputs.table = make_param_table(
      {param("wte", {50, 3}), param("fc", {20, 20}), param("bias", {20}), param("head", {50, 3})},
      {{"head", "wte"}});
  inputs.buckets = plan_buckets(inputs.table, 1 << 11, 1 << 11);
  inputs.overlap = overlap;
  return inputs;
}

TEST(StepProgram, IsThePictureInTheHeader) {
  EXPECT_EQ(text(data_parallel_program(inputs_of(4, 2), 0)),
            "rank 0:\n"
            "  forward 0.0  backward 0.0  fold b0 l0  fold_use p0 l0  fold b1 l0\n"
            "  forward 1.0  backward 1.0  fold b0 l1  reduce b0  fold_use p0 l1  fold b1 l1  "
            "reduce b1\n"
            "  loss  norm  update\n");
}

TEST(StepProgram, WithoutOverlapReducesComeAfterTheLastBackward) {
  EXPECT_EQ(text(data_parallel_program(inputs_of(3, 2, 2, false), 1)),
            "rank 1:\n"
            "  forward 2.0  backward 2.0\n"
            "  forward 2.1  backward 2.1  fold b0 l2  fold_use p0 l2  fold b1 l2  reduce b0  "
            "reduce b1\n"
            "  loss  norm  update\n");
}

TEST(StepProgram, ARankWithoutALeafReducesOnly) {
  StepInputs inputs = inputs_of(2, 2);
  inputs.leaves.ranks = 3;
  EXPECT_EQ(text(data_parallel_program(inputs, 2)),
            "rank 2:\n  reduce b0  reduce b1\n  loss  norm  update\n");
}

std::vector<Step> collectives_of(const StepProgram& program) {
  std::vector<Step> collectives;
  for (const Step& step : program.steps) {
    if (step.op == StepOp::reduce || step.op == StepOp::loss) collectives.push_back(step);
  }
  return collectives;
}

/// Every micro-batch once over all ranks, folds after the backward they need, reduces after folds.
void expect_sound(const StepInputs& inputs) {
  std::set<std::pair<int, int>> computed;
  const auto same_on_all = collectives_of(data_parallel_program(inputs, 0));
  ASSERT_EQ(same_on_all.size(), inputs.buckets.buckets.size() + 1);
  for (int rank = 0; rank < inputs.leaves.ranks; ++rank) {
    const StepProgram program = data_parallel_program(inputs, rank);
    ASSERT_EQ(collectives_of(program), same_on_all) << "rank " << rank;
    std::map<int, int> backwards;           // by leaf
    std::map<int, std::vector<int>> folds;  // by bucket: its leaves, in order
    std::set<int> reduced;
    Step forward;
    for (const Step& step : program.steps) {
      switch (step.op) {
        case StepOp::forward:
          forward = step;
          ASSERT_TRUE(computed.insert({step.leaf, step.micro}).second);
          break;
        case StepOp::backward:
          ASSERT_EQ(step.leaf, forward.leaf);
          ASSERT_EQ(step.micro, forward.micro);
          ASSERT_EQ(backwards[step.leaf]++, step.micro) << "micro-batches in rising order";
          break;
        case StepOp::fold_use:
        case StepOp::fold:
          ASSERT_EQ(backwards[step.leaf], inputs.batch.micro_batches_per_grain);
          if (step.op == StepOp::fold) folds[step.bucket].push_back(step.leaf);
          break;
        case StepOp::reduce:
          ASSERT_EQ(folds[step.bucket], inputs.leaves.leaves_of(rank));
          ASSERT_TRUE(reduced.insert(step.bucket).second);
          break;
        case StepOp::loss:
        case StepOp::norm:
        case StepOp::update:
          ASSERT_EQ(reduced.size(), inputs.buckets.buckets.size());
          break;
        default:
          FAIL() << text(step) << " where nothing is sharded";
      }
    }
  }
  ASSERT_EQ(computed.size(), static_cast<size_t>(inputs.batch.grains) *
                                 static_cast<size_t>(inputs.batch.micro_batches_per_grain));
}

TEST(StepProgram, IsSoundOnEveryWorld) {
  for (int ranks = 1; ranks <= 12; ++ranks) {
    for (int grains = ranks; grains <= 16; ++grains) {
      for (const bool overlap : {true, false}) expect_sound(inputs_of(grains, ranks, 2, overlap));
    }
  }
  for (const int ranks : {63, 100, 512}) expect_sound(inputs_of(513, ranks));
}

/// Carries out all programs on one number a leaf: folds on stacks, reduces by the plan.
TEST(StepProgram, CarriedOutGivesTheBitsOfTheTree) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (int grains = ranks; grains <= 40; ++grains) {
      const auto gradients =
          unlike_values<float>(static_cast<size_t>(grains), static_cast<unsigned>(grains));
      const SumPlan plan = reduce_plan(inputs_of(grains, ranks));
      ASSERT_EQ(bits(evaluated(gradients, plan)), bits(reference_sum(gradients, 0, grains)))
          << grains << " leaves on " << ranks << " ranks";
    }
  }
}

// A plan of many ranks is the same sum in fp64 too, as the loss is taken.
RC_GTEST_PROP(StepProgram, ReducePlanGivesTheBitsOfTheTreeUpTo512, ()) {
  const int grains = *rc::gen::inRange(1, 1025);
  const int ranks = *rc::gen::inRange(1, std::min(grains, 512) + 1);
  StepInputs inputs;
  inputs.batch = plan_batch(grains, 1, grains);
  inputs.leaves = plan_leaves(grains, ranks, LeafAssignment::contiguous);
  const auto losses =
      unlike_values<double>(static_cast<size_t>(grains), *rc::gen::arbitrary<unsigned>());
  RC_ASSERT(bits(evaluated(losses, reduce_plan(inputs))) == bits(reference_sum(losses, 0, grains)));
}

TEST(PlannedBytes, OfOneTermARankAreTheClosedForm) {
  for (const int ranks : {1, 2, 4, 8}) {
    const StepInputs inputs = inputs_of(8, ranks);
    int64_t total = 0;
    for (int rank = 0; rank < ranks; ++rank) total += planned_bytes(inputs, rank).total();
    const int64_t gradients = 2 * (ranks - 1) * inputs.buckets.numel * 4;
    const int64_t loss = ranks * (ranks - 1) * 8;  // inline: each rank reads the others' terms
    EXPECT_EQ(total, gradients + loss) << ranks;
  }
}

// By messages every element is received N-1 times to be added, and N-1 times as a sum; the loss is
// one element.
TEST(PlannedBytes, OfMessagesAreTheClosedForm) {
  for (const Algorithm algorithm : {Algorithm::direct, Algorithm::halving}) {
    for (const int ranks : {1, 2, 4, 8}) {
      StepInputs inputs = inputs_of(8, ranks);
      inputs.sends_messages = true;
      inputs.algorithms.rules = {{Collective::all_reduce, algorithm}};
      int64_t total = 0;
      for (int rank = 0; rank < ranks; ++rank) total += planned_bytes(inputs, rank).total();
      EXPECT_EQ(total, 2 * (ranks - 1) * (inputs.buckets.numel * 4 + 8)) << ranks;
    }
  }
}

// Of three ranks that bring 2, 2 and 1 terms halving cannot take the sum: it is direct.
TEST(PlannedBytes, OfMessagesOfSeveralTermsAreDirect) {
  StepInputs inputs = inputs_of(8, 3);
  const auto total = [&](Algorithm algorithm) {
    inputs.sends_messages = true;
    inputs.algorithms.rules = {{Collective::all_reduce, algorithm}};
    int64_t sum = 0;
    for (int rank = 0; rank < 3; ++rank) sum += planned_bytes(inputs, rank).total();
    return sum;
  };
  EXPECT_EQ(total(Algorithm::halving), total(Algorithm::direct));
  const SumPlan sum = reduce_plan(inputs);
  EXPECT_FALSE(ranks_are_leaves(sum));
  EXPECT_TRUE(ranks_are_leaves(reduce_plan(inputs_of(8, 4))));
  int64_t expected = 0;
  for (const Bucket& bucket : inputs.buckets.buckets) {
    expected += 2 * bucket.numel * 4;  // sums, to the two ranks that do not own them
    for (const TermHolder& term : sum.terms) {
      for (int owner = 0; owner < 3; ++owner) {
        if (owner != term.rank) expected += slice_of(bucket.numel, 3, owner).size() * 4;
      }
    }
  }
  const int64_t loss = (2 + 3) * 8;  // rank 0 owns it and holds two of the five terms
  EXPECT_EQ(total(Algorithm::direct), expected + loss);
}

// Sums over the ranks have a closed form whatever the runs: each of T terms is read by the owner of
// each slice, unless it holds the term itself.
TEST(PlannedBytes, OfThreeRanksCountEveryTerm) {
  const StepInputs inputs = inputs_of(8, 3);  // runs [0,3) [3,6) [6,8): 2, 2 and 1 terms
  const SumPlan plan = reduce_plan(inputs);
  ASSERT_EQ(plan.terms.size(), 5u);
  const std::vector<int64_t> terms = {2, 2, 1};
  for (int rank = 0; rank < 3; ++rank) {
    int64_t expected = (5 - terms[static_cast<size_t>(rank)]) * 8;
    for (const Bucket& bucket : inputs.buckets.buckets) {
      const int64_t slice = slice_of(bucket.numel, 3, rank).size() * 4;
      expected += (5 - terms[static_cast<size_t>(rank)] + 2) * slice;
    }
    EXPECT_EQ(planned_bytes(inputs, rank).dp, expected) << "rank " << rank;
  }
}

}  // namespace
}  // namespace lockstep::plan
