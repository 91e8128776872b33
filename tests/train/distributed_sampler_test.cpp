#include "lockstep/train/distributed_sampler.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <set>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/train/sharded.h"
#include "tests/train/ranks.h"

namespace lockstep {
namespace {

using Samples = std::vector<size_t>;

/// One pass over all ranks' samplers in rounds of `batch`: what each round holds, rank by rank.
std::vector<Samples> pass(std::vector<DistributedSampler>& ranks, size_t batch,
                          int rounds = 1 << 20) {
  for (auto& rank : ranks) rank.reset();
  std::vector<Samples> all;
  for (int round = 0; round < rounds; ++round) {
    Samples together;
    for (auto& rank : ranks) {
      if (const auto mine = rank.next(batch)) {
        together.insert(together.end(), mine->begin(), mine->end());
      }
    }
    if (together.empty()) break;
    all.push_back(together);
  }
  return all;
}

std::vector<DistributedSampler> samplers(int64_t size, int ranks,
                                         const DistributedSamplerOptions& options = {}) {
  std::vector<DistributedSampler> all;
  for (int rank = 0; rank < ranks; ++rank) all.emplace_back(size, rank, ranks, options);
  return all;
}

Samples flat(const std::vector<Samples>& rounds) {
  Samples all;
  for (const Samples& round : rounds) all.insert(all.end(), round.begin(), round.end());
  return all;
}

std::set<size_t> set_of(const Samples& samples) { return {samples.begin(), samples.end()}; }

TEST(DistributedSampler, DATA_1_EachEpochHasItsOwnOrder) {
  for (const bool tell : {false, true}) {
    auto ranks = samplers(10, 2);
    std::vector<Samples> epochs;
    for (int epoch = 0; epoch < 2; ++epoch) {
      if (tell) {
        for (auto& rank : ranks) rank.set_epoch(epoch);
      }
      epochs.push_back(flat(pass(ranks, 1)));
      EXPECT_EQ(ranks[0].epoch(), epoch);
      EXPECT_EQ(set_of(epochs.back()).size(), 10u) << "the union is everything";
      EXPECT_EQ(epochs.back().size(), 10u);
    }
    EXPECT_NE(epochs[0], epochs[1]);
  }
}

TEST(DistributedSampler, DATA_2_ResumeInTheMiddleOfALaterEpoch) {
  auto unbroken = samplers(12, 2);
  pass(unbroken, 2);
  const auto second = pass(unbroken, 2);
  ASSERT_EQ(second.size(), 3u);

  auto stopped = samplers(12, 2);
  pass(stopped, 2);
  pass(stopped, 2, /*rounds=*/2);
  const SampleCursor cursor = stopped[0].cursor_after(4);
  EXPECT_EQ(cursor, (SampleCursor{.epoch = 1, .position = 8}));
  EXPECT_EQ(stopped[1].cursor_after(4), cursor);

  auto resumed = samplers(12, 2);
  for (auto& rank : resumed) rank.restore(cursor);
  const auto rest = pass(resumed, 2);
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_EQ(rest[0], second[2]);
  EXPECT_EQ(flat(pass(resumed, 2)).size(), 12u) << "and then the next epoch, whole";
  EXPECT_EQ(resumed[0].epoch(), 2);
}

TEST(DistributedSampler, DATA_3_AnotherNumberOfRanksReadsTheRestOnce) {
  for (const int ranks : {1, 2, 3, 4, 5}) {
    auto before = samplers(12, 2);
    const Samples done = flat(pass(before, 1, /*rounds=*/2));
    ASSERT_EQ(done.size(), 4u);
    auto after = samplers(12, ranks);
    for (auto& rank : after) rank.restore(before[0].cursor_after(2));
    const Samples rest = flat(pass(after, 1));
    std::set<size_t> seen = set_of(rest);
    for (const size_t sample : done) {
      // Only what pads the last round may come again.
      if (8 % ranks == 0) {
        EXPECT_FALSE(seen.contains(sample)) << sample;
      }
    }
    seen.insert(done.begin(), done.end());
    EXPECT_EQ(seen.size(), 12u);
    EXPECT_EQ(rest.size(), static_cast<size_t>((8 + ranks - 1) / ranks * ranks));
  }
}

TEST(DistributedSampler, RepeatsAreFlagged) {
  const input::RankSamples padded{.order = {.size = 12}, .rank = 2, .ranks = 3, .first = 4};
  ASSERT_EQ(padded.count(), 3);
  EXPECT_FALSE(padded.is_repeat(1));
  EXPECT_TRUE(padded.is_repeat(2));
}

TEST(DistributedSampler, TailsForAnySizes) {
  for (const int64_t size : {1, 2, 7, 12}) {
    for (const int ranks : {1, 2, 3, 4, 13}) {
      for (const int64_t first : {int64_t{0}, size / 2, size}) {
        const int64_t left = size - first;
        int64_t padded = 0;
        int64_t dropped = 0;
        int64_t kept = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          input::RankSamples mine{
              .order = {.size = size}, .rank = rank, .ranks = ranks, .first = first};
          padded += mine.count();
          mine.tail = Tail::drop;
          dropped += mine.count();
          mine.tail = Tail::keep;
          kept += mine.count();
        }
        EXPECT_EQ(kept, left);
        EXPECT_EQ(dropped, left / ranks * ranks);
        EXPECT_EQ(padded, (left + ranks - 1) / ranks * ranks);
      }
    }
  }
}

TEST(DistributedSampler, SavesAndLoads) {
  DistributedSampler sampler(12, 0, 2);
  sampler.reset();
  sampler.next(6);
  sampler.reset();
  sampler.next(2);
  std::stringstream file;
  torch::serialize::OutputArchive out;
  sampler.save(out);
  out.save_to(file);
  DistributedSampler other(12, 1, 3);
  torch::serialize::InputArchive in;
  in.load_from(file);
  other.load(in);
  EXPECT_EQ(other.cursor_after(0), (SampleCursor{.epoch = 1, .position = 4}));
}

TEST(DistributedSampler, RefusesWhatCannotBe) {
  EXPECT_THROW(DistributedSampler(0, 0, 1), UsageError);
  EXPECT_THROW(DistributedSampler(4, 2, 2), UsageError);
  DistributedSampler sampler(4, 0, 1);
  EXPECT_THROW(sampler.restore({.epoch = 0, .position = 5}), UsageError);
}

/// With LibTorch's own data loader, its worker threads reading ahead.
TEST(DistributedSampler, FeedsTheDataLoader) {
  struct Numbers : torch::data::datasets::Dataset<Numbers> {
    torch::data::Example<> get(size_t index) override {
      return {torch::tensor(static_cast<int64_t>(index)), torch::tensor(int64_t{0})};
    }
    torch::optional<size_t> size() const override { return 11; }
  };
  std::multiset<int64_t> seen;
  for (int rank = 0; rank < 2; ++rank) {
    DistributedSampler sampler(11, rank, 2, {.tail = Tail::keep});
    auto loader =
        torch::data::make_data_loader(Numbers().map(torch::data::transforms::Stack<>()), sampler,
                                      torch::data::DataLoaderOptions(4).workers(2));
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (const auto& batch : *loader) {
        for (int64_t i = 0; i < batch.data.numel(); ++i) seen.insert(batch.data[i].item<int64_t>());
      }
      EXPECT_EQ(sampler.epoch(), epoch) << "the loader's copy and ours are one";
    }
  }
  EXPECT_EQ(seen.size(), 22u);
  for (int64_t sample = 0; sample < 11; ++sample) EXPECT_EQ(seen.count(sample), 2u) << sample;
}

TEST(Sharded, DealsBatchesInTurn) {
  std::vector<int> batches = {10, 11, 12, 13, 14, 15, 16};
  const auto dealt = [&](Tail tail) {
    std::vector<std::vector<int>> by_rank(3);
    std::mutex mutex;
    test::on_worlds({3}, [&](const test::World& world) {
      std::vector<int> mine;
      for (const int batch : sharded(batches, world, tail)) mine.push_back(batch);
      const std::lock_guard lock(mutex);
      by_rank[static_cast<size_t>(world->rank())] = mine;
    });
    return by_rank;
  };
  using Dealt = std::vector<std::vector<int>>;
  EXPECT_EQ(dealt(Tail::drop), (Dealt{{10, 13}, {11, 14}, {12, 15}}));
  EXPECT_EQ(dealt(Tail::pad), (Dealt{{10, 13, 16}, {11, 14, 16}, {12, 15, 16}}));
  EXPECT_EQ(dealt(Tail::keep), (Dealt{{10, 13, 16}, {11, 14}, {12, 15}}));
}

TEST(Sharded, TakesLoadersByPointerAndEmptyOnes) {
  test::on_worlds({1, 2}, [](const test::World& world) {
    const auto dataset = torch::data::datasets::TensorDataset(torch::arange(8))
                             .map(torch::data::transforms::Stack<torch::data::TensorExample>());
    auto loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
        dataset, torch::data::DataLoaderOptions(2));
    int64_t sum = 0;
    for (auto& batch : sharded(loader, world)) sum += batch.data.sum().item<int64_t>();
    at::Tensor total = at::full({1}, sum, at::kLong);
    world->all_reduce(total).wait();
    EXPECT_EQ(total.item<int64_t>(), 28);
    std::vector<int> nothing;
    for (const int batch : sharded(nothing, world)) ADD_FAILURE() << batch;
  });
}

}  // namespace
}  // namespace lockstep
