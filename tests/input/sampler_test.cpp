#include "lockstep/input/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>
#include <vector>

#include "lockstep/base/hash.h"
#include "lockstep/plan/batch_plan.h"

namespace lockstep::input {
namespace {

std::vector<int64_t> values_of(const Permutation& permutation, int64_t size) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < size; ++i) values.push_back(permutation(i));
  return values;
}

void expect_each_once(std::vector<int64_t> values) {
  std::sort(values.begin(), values.end());
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], static_cast<int64_t>(i));
}

TEST(Permutation, VisitsEverythingOnce) {
  for (int64_t size = 1; size <= 2000; ++size) {
    SCOPED_TRACE(size);
    expect_each_once(values_of(Permutation(size, base::mix64(static_cast<uint64_t>(size))), size));
  }
  for (const int64_t size : {65'535, 65'536, 65'537, 300'007}) {
    SCOPED_TRACE(size);
    expect_each_once(values_of(Permutation(size, 3), size));
  }
}

/// Too large to walk: images stay inside and differ.
TEST(Permutation, LargeDomains) {
  for (const int64_t size : {(int64_t{1} << 40) + 1, int64_t{1} << 62}) {
    const Permutation permutation(size, 11);
    std::set<int64_t> images;
    for (int64_t i = 0; i < 1000; ++i) {
      for (const int64_t index : {i, size - 1 - i}) {
        const int64_t image = permutation(index);
        ASSERT_GE(image, 0);
        ASSERT_LT(image, size);
        images.insert(image);
      }
    }
    EXPECT_EQ(images.size(), 2000u);
  }
}

/// Over all keys, each value lands on each place equally often. With n keys a cell's count has
/// standard deviation below sqrt(n / size); six of them hold for all cells with probability above
/// 1 - 1e-6 if the permutation is fair, and the keys are fixed.
TEST(Permutation, IsFairOnSmallDomains) {
  constexpr int kKeys = 20'000;
  for (const int64_t size : {2, 3, 5, 16, 17}) {
    std::vector<int> count(static_cast<size_t>(size * size));
    for (uint64_t key = 0; key < kKeys; ++key) {
      const Permutation permutation(size, base::mix64(key));
      for (int64_t i = 0; i < size; ++i) ++count[static_cast<size_t>(i * size + permutation(i))];
    }
    const double expected = static_cast<double>(kKeys) / static_cast<double>(size);
    for (const int cell : count) EXPECT_NEAR(cell, expected, 6 * std::sqrt(expected)) << size;
  }
}

/// The order is part of a run's bits: it may never change.
TEST(Permutation, KnownValues) {
  EXPECT_EQ(values_of(Permutation(10, 42), 10),
            (std::vector<int64_t>{6, 5, 4, 2, 8, 0, 9, 7, 1, 3}));
  const Sampler sampler{.tokens = 101, .context = 10, .seed = 1337};
  std::vector<int64_t> first_tokens;
  for (int64_t sample = 0; sample < 20; ++sample)
    first_tokens.push_back(sampler.first_token(sample));
  EXPECT_EQ(first_tokens, (std::vector<int64_t>{60, 50, 0,  40, 20, 80, 70, 90, 30, 10,
                                                80, 50, 30, 0,  10, 60, 70, 90, 20, 40}));
}

TEST(Sampler, WindowsLieInsideTheData) {
  for (int64_t tokens = 2; tokens < 60; ++tokens) {
    for (int64_t context = 1; context < tokens; ++context) {
      const Sampler sampler{.tokens = tokens, .context = context, .seed = 5};
      ASSERT_GE(sampler.windows(), 1);
      for (int64_t sample = 0; sample < 2 * sampler.windows(); ++sample) {
        const int64_t first = sampler.first_token(sample);
        ASSERT_GE(first, 0);
        ASSERT_EQ(first % context, 0);
        ASSERT_LE(first + context + 1, tokens) << "inputs and the last target";
      }
    }
  }
  EXPECT_EQ((Sampler{.tokens = 0, .context = 8}.windows()), 0);
  EXPECT_EQ((Sampler{.tokens = 8, .context = 8}.windows()), 0);
  EXPECT_EQ((Sampler{.tokens = 9, .context = 8}.windows()), 1);
}

/// First tokens of the samples that `ranks` ranks see in `steps` steps from `first_step` on, in the
/// order of the sample's number, through the plan that a run uses.
std::vector<int64_t> seen(const Sampler& sampler, int64_t global_batch, int ranks,
                          int64_t first_step, int64_t steps) {
  const auto batch = plan::plan_batch(global_batch, 1, 0);
  const auto leaves = plan::plan_leaves(batch.grains, std::min(ranks, batch.grains),
                                        plan::LeafAssignment::round_robin);
  std::vector<std::pair<int64_t, int64_t>> samples;
  for (int rank = 0; rank < leaves.ranks; ++rank) {
    for (int64_t step = first_step; step < first_step + steps; ++step) {
      for (const auto& round : leaves.rounds_of(rank, batch.micro_batches_per_grain)) {
        if (round.phantom()) continue;
        const auto range = batch.samples(round.leaf, round.micro);
        for (int64_t i = range.lo; i < range.hi; ++i) {
          const int64_t sample = step * global_batch + i;
          samples.emplace_back(sample, sampler.first_token(sample));
        }
      }
    }
  }
  std::sort(samples.begin(), samples.end());
  std::vector<int64_t> first_tokens;
  for (const auto& [sample, first] : samples) first_tokens.push_back(first);
  return first_tokens;
}

/// Ten windows, shuffled, seed 0, two ranks, epochs 0 and 1: nobody has to say that an epoch began.
TEST(Sampler, EpochsDifferAndEachIsWhole) {
  const Sampler sampler{.tokens = 10 * 8 + 1, .context = 8, .seed = 0};
  auto first = seen(sampler, 2, 2, 0, 5);
  auto second = seen(sampler, 2, 2, 5, 5);
  EXPECT_NE(first, second);
  EXPECT_EQ(sampler.epoch_of(9), 0);
  EXPECT_EQ(sampler.epoch_of(10), 1);
  EXPECT_EQ(first, seen(sampler, 2, 1, 0, 5)) << "one rank sees what two see";
  for (auto* epoch : {&first, &second}) {
    std::sort(epoch->begin(), epoch->end());
    for (size_t i = 0; i < 10; ++i) EXPECT_EQ((*epoch)[i], static_cast<int64_t>(8 * i));
  }
}

TEST(Sampler, EpochsNeedNotDivideIntoSteps) {
  const Sampler sampler{.tokens = 7 * 3 + 2, .context = 3, .seed = 9};  // 7 windows, batch 4
  auto all = seen(sampler, 4, 3, 0, 7);                                 // 28 samples: 4 epochs
  ASSERT_EQ(all.size(), 28u);
  for (size_t epoch = 0; epoch < 4; ++epoch) {
    std::set<int64_t> windows(all.begin() + static_cast<long>(7 * epoch),
                              all.begin() + static_cast<long>(7 * epoch + 7));
    EXPECT_EQ(windows.size(), 7u) << epoch;
  }
}

/// Twelve windows, batch 4; stopped in epoch 1 after two of three batches, then resumed, on 2, 3
/// and 1 ranks: the batch that comes is the rest of the epoch, in the unbroken run's order.
TEST(Sampler, ResumingIsTheUnbrokenRun) {
  const Sampler sampler{.tokens = 12 * 5 + 1, .context = 5, .seed = 3};
  const auto unbroken = seen(sampler, 4, 2, 0, 6);
  for (const int ranks : {1, 2, 3, 4}) {
    const auto resumed = seen(sampler, 4, ranks, 5, 1);
    EXPECT_EQ(resumed, std::vector<int64_t>(unbroken.begin() + 20, unbroken.end())) << ranks;
  }
  std::set<int64_t> epoch(unbroken.begin() + 12, unbroken.end());
  EXPECT_EQ(epoch.size(), 12u);
}

TEST(Sampler, SeedsDifferAndWithoutShuffleOrderIsTheFiles) {
  Sampler sampler{.tokens = 1001, .context = 10, .seed = 1};
  const auto one = seen(sampler, 4, 2, 0, 25);
  sampler.seed = 2;
  EXPECT_NE(seen(sampler, 4, 2, 0, 25), one);
  sampler.shuffle = false;
  const auto plain = seen(sampler, 4, 2, 0, 50);
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(plain[i], static_cast<int64_t>(i % 100 * 10));
}

TEST(Evaluation, WindowsAreEvenlySpaced) {
  for (const int64_t windows : {1, 2, 7, 100, 101}) {
    const int64_t tokens = windows * 4 + 1;
    for (int64_t count = 1; count <= windows; ++count) {
      int64_t before = -4;
      for (int64_t i = 0; i < count; ++i) {
        const int64_t first = evaluation_token(tokens, 4, count, i);
        ASSERT_GT(first, before) << "no window twice";
        ASSERT_LE(std::abs(first / 4 * count - i * windows), count) << "evenly spaced";
        before = first;
      }
      ASSERT_LE(before + 5, tokens);
      ASSERT_EQ(evaluation_token(tokens, 4, count, 0), 0);
    }
  }
}

TEST(Evaluation, TooFewWindowsRepeat) {
  std::vector<int64_t> first;
  for (int64_t i = 0; i < 6; ++i) first.push_back(evaluation_token(3 * 4 + 3, 4, 6, i));
  EXPECT_EQ(first, (std::vector<int64_t>{0, 0, 4, 4, 8, 8}));
  // (2^40 - 1) (2^50 - 1) / 2^40, which does not fit 64 bits on the way.
  EXPECT_EQ(evaluation_token(int64_t{1} << 50, 1, int64_t{1} << 40, (int64_t{1} << 40) - 1),
            (int64_t{1} << 50) - 1025);
}

}  // namespace
}  // namespace lockstep::input
