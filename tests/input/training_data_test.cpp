#include "lockstep/input/training_data.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "lockstep/base/counter_random.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/files/temp_folder.h"
#include "lockstep/input/batch_stream.h"
#include "lockstep/input/data_cursor.h"
#include "tests/files/on_disk.h"
#include "tests/input/token_files.h"

namespace lockstep::input {
namespace {

using on_disk::message_of;

/// Tokens that are in memory: token i is `offset` + i.
class Counting : public TokenSource {
 public:
  Counting(int64_t size, int64_t offset) : size_(size), offset_(offset) {}
  const std::string& path() const override { return path_; }
  int64_t size() const override { return size_; }
  void read(int64_t first, int64_t count, int64_t* out) const override {
    std::iota(out, out + count, offset_ + first);
  }

 private:
  std::string path_ = "counting";
  int64_t size_;
  int64_t offset_;
};

TrainingData::Source counting(int64_t windows, int64_t context, int64_t weight = 1,
                              int64_t offset = 0, uint64_t seed = 0) {
  const int64_t tokens = windows * context + 1;
  return {.weight = weight,
          .tokens = std::make_shared<Counting>(tokens, offset),
          .sampler = {.tokens = tokens, .context = context, .seed = seed}};
}

// ---- which source

TEST(SourceOrder, CountsStayWithinOneOfTheWeights) {
  std::vector<std::vector<int64_t>> cases = {
      {1},       {7, 3},          {1, 1},   {1, 1, 1},     {1, 1000},     {999, 1},
      {5, 3, 2}, {1, 2, 3, 4, 5}, {97, 89}, {31, 1, 1, 1}, {1'000'000, 1}};
  for (uint64_t trial = 0; trial < 60; ++trial) {
    const auto key = base::RandomKey(trial).with("weights");
    std::vector<int64_t> weights(1 + key.below(0, 7));
    for (size_t s = 0; s < weights.size(); ++s) {
      weights[s] = 1 + static_cast<int64_t>(key.below(s + 1, 60));
    }
    cases.push_back(weights);
  }
  for (const auto& weights : cases) {
    const int64_t all = std::accumulate(weights.begin(), weights.end(), int64_t{0});
    const SourceOrder order(weights);
    std::vector<int64_t> count(weights.size());
    for (int64_t k = 0; k < std::min<int64_t>(2 * all + 5, 5000); ++k) {
      for (size_t s = 0; s < weights.size(); ++s) {
        // |count - k w / all| < 1, in whole numbers.
        ASSERT_LT(std::abs(count[s] * all - k * weights[s]), all)
            << testing::PrintToString(weights) << " after " << k;
        ASSERT_EQ(order.count(static_cast<int>(s), k), count[s]);
      }
      const auto place = order(k);
      ASSERT_EQ(place.number, count[static_cast<size_t>(place.source)]++);
    }
  }
}

TEST(SourceOrder, AnySampleIsAnsweredAtOnce) {
  const SourceOrder order({70, 30});
  std::string first;
  for (int64_t k = 0; k < 20; ++k) first += order(k).source == 0 ? 'a' : 'b';
  EXPECT_EQ(first, "aabaabaaabaabaabaaab") << "7 to 3, and again";
  const int64_t far = 10'000'000'000'000;
  EXPECT_EQ(order(far + 2).source, 1);
  EXPECT_EQ(order(far + 2).number, far / 10 * 3);
  EXPECT_EQ(order.count(0, far), far / 10 * 7);
}

TEST(SourceOrder, WeightsThatCannotBeAreRefused) {
  EXPECT_NE(message_of<UsageError>([] { SourceOrder({}); }), "");
  EXPECT_NE(message_of<UsageError>([] { SourceOrder({1, 0}); }), "");
  EXPECT_NE(message_of<UsageError>([] {
              SourceOrder({1, 1 << 20});
            }).find("fewer digits"),
            std::string::npos);
  EXPECT_NE(message_of<UsageError>([] { SourceOrder({INT64_MAX, INT64_MAX - 1}); }), "");
}

// ---- the setting

TEST(Sources, AreReadFromOneText) {
  using Names = std::vector<SourceName>;
  EXPECT_EQ(parse_sources("data/a, b.bin"), (Names{{"1", "data/a, b.bin"}}));
  EXPECT_EQ(parse_sources("x:y.bin"), (Names{{"1", "x:y.bin"}}));
  EXPECT_EQ(parse_sources("0.7:a.bin, 0.3:dir/b.bin"),
            (Names{{"0.7", "a.bin"}, {"0.3", "dir/b.bin"}}));
  EXPECT_EQ(parse_sources("2:a.bin"), (Names{{"2", "a.bin"}}));
  for (const char* bad : {"0.7:a.bin, b.bin", "1:a.bin,", "1:", "0:a.bin", "1:a.bin, 0.0000001:b",
                          "1.2.3:a.bin", ".:a.bin", "1234567:a.bin"}) {
    EXPECT_NE(message_of<UsageError>([&] { parse_sources(bad); }), "") << bad;
  }
}

class TrainingDataFiles : public ::testing::Test {
 protected:
  std::string file(const std::string& name, int64_t tokens, uint16_t start) {
    std::vector<uint16_t> ids(static_cast<size_t>(tokens));
    std::iota(ids.begin(), ids.end(), start);
    put_tokens(folder_.file(name), ids);
    return folder_.file(name);
  }
  files::TempFolder folder_{"sources-test"};
};

TEST_F(TrainingDataFiles, OneSourceIsTheSamplersOrder) {
  const std::string path = file("a.bin", 101, 0);
  const SampleSettings settings{.context = 10, .seed = 5};
  const Sampler sampler{.tokens = 101, .context = 10, .seed = 5};
  for (const std::string& text : {path, "0.25:" + path}) {
    const auto data = TrainingData::open(text, settings);
    for (int64_t k = 0; k < 25; ++k) {
      EXPECT_EQ(data->place_of(k).first_token, sampler.first_token(k));
      EXPECT_EQ(data->place_of(k).epoch, k / 10);
    }
    EXPECT_EQ(data->epochs(25), 2.5);
  }
}

TEST_F(TrainingDataFiles, EachSourceHasItsOwnEpochs) {
  const auto data = TrainingData::open(
      base::str("0.75:", file("a.bin", 61, 0), ",0.25:", file("b.bin", 61, 1000)),
      {.context = 10, .seed = 5});
  std::map<int64_t, int> seen;  // windows, by their first token
  std::vector<std::vector<int64_t>> orders(2);
  for (int64_t k = 0; k < 24; ++k) {
    int64_t row[11];
    data->read(k, row);
    for (int i = 0; i < 11; ++i) ASSERT_EQ(row[i], row[0] + i);
    ++seen[row[0]];
    orders[row[0] >= 1000].push_back(row[0] % 1000);
  }
  EXPECT_EQ(data->epochs(0, 24), 3.0);
  EXPECT_EQ(data->epochs(1, 24), 1.0);
  EXPECT_EQ(data->epochs(24), 3.0);
  for (int64_t window = 0; window < 6; ++window) {
    EXPECT_EQ(seen[10 * window], 3);
    EXPECT_EQ(seen[1000 + 10 * window], 1);
  }
  EXPECT_NE(std::vector<int64_t>(orders[0].begin(), orders[0].begin() + 6), orders[1])
      << "sources of one size are not read in step";
  EXPECT_EQ(data->tokens(), 122);
  data->check_ids(1061);
  EXPECT_NE(message_of<EnvironmentError>([&] { data->check_ids(1060); }).find("b.bin: token 60"),
            std::string::npos);
}

TEST_F(TrainingDataFiles, ASourceWithoutAWindowIsNamed) {
  const std::string text = base::str("1:", file("a.bin", 61, 0), ",1:", file("short.bin", 1, 0));
  const std::string message =
      message_of<EnvironmentError>([&] { TrainingData::open(text, {.context = 10}); });
  EXPECT_NE(message.find("short.bin has 1 token;"), std::string::npos) << message;
}

// ---- epochs and resuming (cases of the acceptance list)

/// The samples' windows of each step, by rank, as `ranks` ranks read the steps first to last.
std::vector<std::vector<int64_t>> windows_read(const std::shared_ptr<const TrainingData>& data,
                                               int64_t batch, int grains, int ranks, int64_t first,
                                               int64_t last) {
  const auto cut = plan::plan_batch(batch, batch / grains, grains);
  const auto leaves = plan::plan_leaves(grains, ranks, plan::LeafAssignment::round_robin);
  std::vector<std::vector<int64_t>> read(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    BatchStream stream(data, cut, leaves.rounds_of(rank, cut.micro_batches_per_grain), first, last);
    for (int64_t step = first; step < last; ++step) {
      for (const auto& micro : stream.next()) {
        for (size_t at = 0; at < micro.tokens.size();
             at += static_cast<size_t>(micro.context) + 1) {
          read[static_cast<size_t>(rank)].push_back(micro.tokens[at] / micro.context);
        }
      }
    }
  }
  return read;
}

std::multiset<int64_t> together(const std::vector<std::vector<int64_t>>& read) {
  std::multiset<int64_t> all;
  for (const auto& windows : read) all.insert(windows.begin(), windows.end());
  return all;
}

std::multiset<int64_t> windows_of(const TrainingData& data, int64_t first, int64_t last) {
  std::multiset<int64_t> all;
  for (int64_t k = first; k < last; ++k) all.insert(data.place_of(k).first_token / data.context());
  return all;
}

std::multiset<int64_t> up_to(int64_t count) {
  std::multiset<int64_t> all;
  for (int64_t i = 0; i < count; ++i) all.insert(i);
  return all;
}

std::shared_ptr<const TrainingData> only(TrainingData::Source source) {
  return std::make_shared<TrainingData>(std::vector<TrainingData::Source>{std::move(source)});
}

/// 10 samples, shuffle, seed 0, 2 ranks, epochs 0 and 1; nobody tells the sampler the epoch.
TEST(Data, DATA_1_TheEpochAdvancesByItself) {
  const auto data = only(counting(10, 3));
  std::vector<std::vector<int64_t>> orders(2);
  for (int64_t k = 0; k < 20; ++k) {
    EXPECT_EQ(data->place_of(k).epoch, k / 10);
    orders[static_cast<size_t>(k / 10)].push_back(data->place_of(k).first_token / 3);
  }
  EXPECT_NE(orders[0], orders[1]);
  for (const int64_t epoch : {0, 1}) {
    const auto read = windows_read(data, 2, 2, 2, 5 * epoch, 5 * epoch + 5);
    EXPECT_EQ(together(read), up_to(10));
    for (size_t i = 0; i < 5; ++i) {  // both ranks walk the one order, in turns
      EXPECT_EQ(read[0][i], orders[static_cast<size_t>(epoch)][2 * i]);
      EXPECT_EQ(read[1][i], orders[static_cast<size_t>(epoch)][2 * i + 1]);
    }
  }
}

/// 12 samples, 2 ranks with 2 each, 3 batches an epoch; stopped in epoch 1 after 2 of them.
TEST(Data, DATA_2_ResumingInTheMiddleOfAnEpochGoesOnInThatEpochsOrder) {
  const auto data = only(counting(12, 3));
  const auto unbroken = windows_read(data, 4, 2, 2, 3, 6);
  const auto cursor =
      data_cursor_from_json(nlohmann::json::parse(to_json(data_cursor(*data, 20)).dump()));
  const int64_t step = cursor.samples / 4;
  const auto resumed = windows_read(only(counting(12, 3)), 4, 2, 2, step, step + 1);
  auto missing = up_to(12);
  for (const int64_t seen : together(windows_read(data, 4, 2, 2, 3, 5))) {
    missing.erase(missing.find(seen));
  }
  EXPECT_EQ(together(resumed), missing);
  for (const size_t rank : {0, 1}) {
    EXPECT_EQ(resumed[rank],
              std::vector<int64_t>(unbroken[rank].begin() + 4, unbroken[rank].end()));
  }
}

/// 12 samples, 2 ranks, 4 done; on with 3 ranks, then with 1.
TEST(Data, DATA_3_AnotherNumberOfRanksReadsTheRestOnce) {
  const auto data = only(counting(12, 3));
  auto all = together(windows_read(data, 4, 4, 2, 0, 1));
  all.merge(together(windows_read(data, 4, 4, 3, 1, 2)));
  all.merge(together(windows_read(data, 4, 4, 1, 2, 3)));
  EXPECT_EQ(all, up_to(12)) << "each once, no padding";
  for (const int ranks : {1, 2, 3, 4}) {
    EXPECT_EQ(together(windows_read(data, 4, 4, ranks, 1, 2)), windows_of(*data, 4, 8));
  }
}

TEST(Cursor, OtherDataAreRefusedByName) {
  const auto sources = [] {
    return std::vector<TrainingData::Source>{counting(50, 4, 2, 0, 9), counting(30, 4, 1, 500, 9)};
  };
  const auto saved = data_cursor(TrainingData(sources()), 77);
  EXPECT_EQ(saved.samples, 77);
  require_same_data(saved, data_cursor(TrainingData(sources()), 0));

  const auto refusal = [&](std::vector<TrainingData::Source> other) {
    return message_of<StateError>(
        [&] { require_same_data(saved, data_cursor(TrainingData(std::move(other)), 0)); });
  };
  const auto with = [&](auto change) {
    auto other = sources();
    change(other);
    return refusal(std::move(other));
  };
  const auto expect = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(with([](auto& s) { s.pop_back(); }), "the number of sources was 2, is 1");
  expect(with([](auto& s) { s[1] = counting(30, 4, 1, 501, 9); }), "source 1 was counting");
  expect(with([](auto& s) { s[0] = counting(51, 4, 2, 0, 9); }), "source 0 was counting");
  expect(with([](auto& s) { s[1].weight = 2; }), "weight 2");
  expect(with([](auto& s) { s[0].sampler.seed = 8; }), "run.seed was 9, is 8");
  expect(with([](auto& s) { s[0].sampler.shuffle = false; }), "data.shuffle was 1, is 0");
  expect(refusal({counting(50, 5, 2, 0, 9), counting(30, 5, 1, 500, 9)}), "model.context was 4");
}

TEST(Cursor, DamagedOnesAreRefused) {
  const auto good = to_json(data_cursor(*only(counting(12, 3)), 5));
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, nlohmann::json>>{{"samples", -1},
                                                           {"samples", "x"},
                                                           {"context", 0},
                                                           {"sources", nlohmann::json::array()},
                                                           {"sources", nlohmann::json::array({1})},
                                                           {"seed", nullptr},
                                                           {"shuffle", 1}}) {
    auto bad = good;
    bad[key] = value;
    EXPECT_NE(message_of<StateError>([&] { data_cursor_from_json(bad); }), "") << bad;
  }
  EXPECT_NE(message_of<StateError>([] { data_cursor_from_json(nlohmann::json(3)); }), "");
}

}  // namespace
}  // namespace lockstep::input
