#include "lockstep/plan/batch_plan.h"

#include <functional>
#include <string>

#include "lockstep/base/error.h"
#include "tests/plan/property.h"

namespace lockstep::plan {
namespace {

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(BatchPlan, CutsThePictureInTheHeader) {
  const BatchPlan plan = plan_batch(16, 4, 0);
  EXPECT_EQ(plan.grains, 4);
  EXPECT_EQ(plan.micro_batches_per_grain, 1);
  EXPECT_EQ(plan.samples(1, 0), (SampleRange{4, 8}));

  const BatchPlan two_micro_batches = plan_batch(24, 2, 4);
  EXPECT_EQ(two_micro_batches.micro_batches_per_grain, 3);
  EXPECT_EQ(two_micro_batches.samples(2, 1), (SampleRange{14, 16}));
}

TEST(BatchPlan, AutoGrainsIsTheLargestPowerOfTwoUpToEightThatDivides) {
  EXPECT_EQ(plan_batch(7, 1, 0).grains, 1);
  EXPECT_EQ(plan_batch(6, 1, 0).grains, 2);
  EXPECT_EQ(plan_batch(12, 1, 0).grains, 4);
  EXPECT_EQ(plan_batch(32, 1, 0).grains, 8);
  EXPECT_EQ(plan_batch(64, 4, 0).grains, 8);
  EXPECT_EQ(plan_batch(64, 4, 0).micro_batches_per_grain, 2);
}

RC_GTEST_PROP(BatchPlan, EverySampleIsInOneMicroBatch, ()) {
  const int grains = *rc::gen::inRange(1, 513);
  const int64_t micro_batches = grains * *rc::gen::inRange<int64_t>(1, 8);
  const int64_t micro_batch = *rc::gen::inRange<int64_t>(1, 9);
  const BatchPlan plan = plan_batch(micro_batches * micro_batch, micro_batch, grains);
  int64_t at = 0;
  for (int leaf = 0; leaf < plan.grains; ++leaf) {
    for (int micro = 0; micro < plan.micro_batches_per_grain; ++micro) {
      RC_ASSERT(plan.samples(leaf, micro).lo == at);
      RC_ASSERT(plan.samples(leaf, micro).size() == micro_batch);
      at += micro_batch;
    }
  }
  RC_ASSERT(at == plan.global_batch);
}

TEST(BatchPlan, RefusesAMicroBatchThatDoesNotDivide) {
  EXPECT_EQ(refusal([] { plan_batch(10, 4, 0); }),
            "data.global_batch = 10 does not divide by data.micro_batch = 4.\n"
            "  Set data.micro_batch = 5 or 2, or data.global_batch = 8 or 12.");
  EXPECT_EQ(refusal([] { plan_batch(3, 4, 0); }),
            "data.global_batch = 3 does not divide by data.micro_batch = 4.\n"
            "  Set data.micro_batch = 3, or data.global_batch = 4.");
}

TEST(BatchPlan, RefusesGrainsThatDoNotDivide) {
  EXPECT_EQ(refusal([] { plan_batch(24, 2, 5); }),
            "data.global_batch / data.micro_batch = 24 / 2 = 12 micro-batches do not divide by "
            "numerics.grains = 5.\n"
            "  Set numerics.grains = 4 or 6, or data.global_batch = 20 or 30.");
  EXPECT_EQ(refusal([] { plan_batch(8, 2, 16); }),
            "data.global_batch / data.micro_batch = 8 / 2 = 4 micro-batches do not divide by "
            "numerics.grains = 16.\n"
            "  Set numerics.grains = 4, or data.global_batch = 32.");
}

// The values that a refusal offers are accepted.
RC_GTEST_PROP(BatchPlan, WhatItOffersFits, ()) {
  const int64_t global = *rc::gen::inRange<int64_t>(1, 200);
  const int64_t micro = *rc::gen::inRange<int64_t>(1, 20);
  const int grains = *rc::gen::inRange(0, 20);
  const std::string text = refusal([&] { plan_batch(global, micro, grains); });
  if (text == "accepted") return;
  const auto offered = [&](const std::string& key) {
    const size_t at = text.find(key + " = ", text.find("\n  Set"));
    return at == std::string::npos ? -1 : std::stoll(text.substr(at + key.size() + 3));
  };
  if (const int64_t value = offered("numerics.grains"); value > 0) {
    plan_batch(global, micro, static_cast<int>(value));
  }
  if (const int64_t value = offered("data.micro_batch"); value > 0) plan_batch(global, value, 0);
  const bool micro_is_wrong = global % micro != 0;
  plan_batch(offered("data.global_batch"), micro, micro_is_wrong ? 0 : grains);
}

TEST(BatchPlan, RefusesSizesThatAreNone) {
  EXPECT_THROW(plan_batch(0, 4, 0), UsageError);
  EXPECT_THROW(plan_batch(-8, 4, 0), UsageError);
  EXPECT_THROW(plan_batch(8, 0, 0), UsageError);
  EXPECT_THROW(plan_batch(8, 4, -1), UsageError);
}

TEST(BatchPlan, ClipsToTheSamplesThereAre) {
  EXPECT_EQ(clipped({4, 8}, 100), (SampleRange{4, 8}));
  EXPECT_EQ(clipped({4, 8}, 6), (SampleRange{4, 6}));
  EXPECT_EQ(clipped({4, 8}, 4).size(), 0);
  EXPECT_EQ(clipped({4, 8}, 0).size(), 0);
}

TEST(LeafSchedule, DealsThePictureInTheHeader) {
  const LeafSchedule runs = plan_leaves(4, 3, LeafAssignment::contiguous);
  EXPECT_EQ(runs.leaves_of(0), (std::vector<int>{0, 1}));
  EXPECT_EQ(runs.leaves_of(1), (std::vector<int>{2}));
  EXPECT_EQ(runs.leaves_of(2), (std::vector<int>{3}));
  EXPECT_EQ(runs.rounds_of(0, 1), (std::vector<Round>{{0, 0}, {1, 0}}));
  EXPECT_EQ(runs.rounds_of(2, 1), (std::vector<Round>{{3, 0}, {-1, -1}}));
  EXPECT_TRUE(runs.rounds_of(2, 1)[1].phantom());

  const LeafSchedule dealt = plan_leaves(4, 3, LeafAssignment::round_robin);
  EXPECT_EQ(dealt.leaves_of(0), (std::vector<int>{0, 3}));
  EXPECT_EQ(dealt.leaves_of(1), (std::vector<int>{1}));
  EXPECT_EQ(dealt.rounds_of(0, 2), (std::vector<Round>{{0, 0}, {0, 1}, {3, 0}, {3, 1}}));
}

void expect_leaves_dealt_once(const LeafSchedule& schedule, int micro_batches) {
  std::vector<int> times(static_cast<size_t>(schedule.grains));
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    int before = -1;
    for (const int leaf : schedule.leaves_of(rank)) {
      ASSERT_GT(leaf, before) << "in rising order";
      before = leaf;
      ASSERT_EQ(schedule.rank_of(leaf), rank);
      ++times[static_cast<size_t>(leaf)];
    }
    const auto rounds = schedule.rounds_of(rank, micro_batches);
    const int leaves_at_most = (schedule.grains + schedule.ranks - 1) / schedule.ranks;
    ASSERT_EQ(rounds.size(), static_cast<size_t>(leaves_at_most * micro_batches));
    size_t real = 0;
    while (real < rounds.size() && !rounds[real].phantom()) ++real;
    ASSERT_EQ(real, schedule.leaves_of(rank).size() * static_cast<size_t>(micro_batches));
    for (size_t i = real; i < rounds.size(); ++i) ASSERT_TRUE(rounds[i].phantom());
  }
  for (const int time : times) ASSERT_EQ(time, 1);
}

TEST(LeafSchedule, EveryLeafIsComputedOnceOnAnyWorldUpTo512) {
  for (const auto assignment : {LeafAssignment::contiguous, LeafAssignment::round_robin}) {
    for (int ranks = 1; ranks <= 40; ++ranks) {
      for (int grains = ranks; grains <= 40; ++grains) {
        expect_leaves_dealt_once(plan_leaves(grains, ranks, assignment), 2);
      }
    }
    for (const int ranks : {63, 64, 100, 255, 512}) {
      for (const int grains : {512, 513, 777, 1024}) {
        expect_leaves_dealt_once(plan_leaves(grains, ranks, assignment), 1);
      }
    }
  }
}

TEST(LeafSchedule, RunsDifferByOneAtMostLongerFirst) {
  const LeafSchedule schedule = plan_leaves(11, 4, LeafAssignment::contiguous);
  std::vector<int> sizes;
  for (int rank = 0; rank < 4; ++rank) sizes.push_back(schedule.run_of(rank).size());
  EXPECT_EQ(sizes, (std::vector<int>{3, 3, 3, 2}));
}

TEST(LeafSchedule, RefusesMoreRanksThanLeavesAndSaysWhatToSet) {
  EXPECT_EQ(refusal([] { plan_leaves(4, 5, LeafAssignment::contiguous); }),
            "5 data-parallel ranks but only 4 leaves in a step: a rank would have nothing to "
            "compute.\n  Set numerics.grains = 8 (needs data.global_batch / data.micro_batch to "
            "divide by 8) or start at most 4 data-parallel ranks.");
  EXPECT_EQ(refusal([] { plan_leaves(1, 16, LeafAssignment::round_robin); }),
            "16 data-parallel ranks but only 1 leaf in a step: a rank would have nothing to "
            "compute.\n  Set numerics.grains = 16 (needs data.global_batch / data.micro_batch to "
            "divide by 16) or start at most 1 data-parallel rank.");
  EXPECT_THROW(plan_leaves(0, 1, LeafAssignment::contiguous), UsageError);
  EXPECT_THROW(plan_leaves(4, 0, LeafAssignment::contiguous), UsageError);
}

}  // namespace
}  // namespace lockstep::plan
