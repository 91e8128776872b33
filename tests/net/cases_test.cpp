// Situations that once went wrong elsewhere, by their names in the list of cases, on both engines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "tests/net/ranks.h"
#include "tests/net/values.h"

namespace lockstep::net::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

struct Place {
  Engine engine;
  int ranks;
};

class Cases : public ::testing::TestWithParam<Place> {
 protected:
  void run(const Body& body) { run_on(GetParam().engine, GetParam().ranks, body); }
};

std::vector<Place> places() {
  std::vector<Place> all;
  for (const Engine engine : {Engine::threads, Engine::shm}) {
    for (const int ranks : {2, 3, 4}) all.push_back({engine, ranks});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Engines, Cases, ::testing::ValuesIn(places()), [](const auto& info) {
  return std::string(name_of(info.param.engine)) + std::to_string(info.param.ranks);
});

std::vector<int> everyone(const Group& group) {
  std::vector<int> ranks(static_cast<size_t>(group.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

/// The error of `call`, which must come within a second.
std::string prompt_error(const std::function<void()>& call) {
  const auto start = Clock::now();
  const std::string error = error_of(call);
  EXPECT_LT(Clock::now() - start, 1s);
  return error;
}

TEST_P(Cases, COLL_2_SizesTypesAndOperatorsThatDifferAreRefusedOnEveryRank) {
  struct Odd {
    int64_t count;
    DType type;
    ReduceOp op;
    const char* text;
  };
  const std::vector<Odd> odd_calls = {
      {200, DType::f32, ReduceOp::sum, "all_reduce of 200 float32 (sum)"},
      {100, DType::i32, ReduceOp::sum, "all_reduce of 100 int32 (sum)"},
      {100, DType::f32, ReduceOp::max, "all_reduce of 100 float32 (max)"}};
  run([&](const std::shared_ptr<Group>& world) {
    const int last = world->size() - 1;
    for (const bool in_heap : {true, false}) {
      for (const Odd& odd : odd_calls) {
        const auto group = world->subgroup(everyone(*world), "checked");
        Buffer<float> x(*world, 200, in_heap);
        x.fill(1, world->rank());
        const std::string error = prompt_error([&] {
          if (world->rank() == last) {
            group->all_reduce(x.data(), odd.count, odd.type, odd.op);
          } else {
            group->all_reduce(x.data(), 100, DType::f32);
          }
        });
        EXPECT_THAT(error, AllOf(HasSubstr("all_reduce on \"checked\" #1: "), HasSubstr(odd.text),
                                 HasSubstr("all_reduce of 100 float32 (sum)"),
                                 HasSubstr(base::str("[rank ", world->rank(), " of "))));
        for (int64_t i = 0; i < 200; ++i) {
          ASSERT_TRUE(same_bits(x[i], value<float>(1, world->rank(), i))) << "data were used";
        }
        // A new group is not held up by what the old one left behind.
        const auto next = world->subgroup(everyone(*world), "next");
        float one = 1;
        next->all_reduce(&one, 1, DType::f32);
        EXPECT_EQ(one, static_cast<float>(world->size()));
      }
    }
  });
}

TEST_P(Cases, COLL_4_AnAverageIsOverRanksAndRefusedForIntegers) {
  run([](const std::shared_ptr<Group>& world) {
    int32_t whole = 1 + 3 * world->rank();
    EXPECT_THAT(error_of([&] { world->all_reduce(&whole, 1, DType::i32, ReduceOp::average); }),
                HasSubstr("an average of int32 is none"));
    const std::vector<int64_t> counts(static_cast<size_t>(world->size()), 1);
    std::vector<int64_t> long_ones(static_cast<size_t>(world->size()), 1);
    EXPECT_THROW(world->reduce_scatter(long_ones.data(), &long_ones[0], counts, DType::i64,
                                       ReduceOp::average),
                 UsageError);
    EXPECT_EQ(whole, 1 + 3 * world->rank());
    // 1, 3, 5, 7: the average over N ranks is N, whatever the number of elements.
    for (const int64_t count : {1, 2, 5, 1000, 40'000}) {
      for (const bool in_heap : {true, false}) {
        Buffer<float> x(*world, count, in_heap);
        Buffer<double> y(*world, count, in_heap);
        for (int64_t i = 0; i < count; ++i) {
          x[i] = static_cast<float>(1 + 2 * world->rank());
          y[i] = x[i];
        }
        world->all_reduce(x.data(), count, DType::f32, ReduceOp::average);
        world->all_reduce(y.data(), count, DType::f64, ReduceOp::average);
        for (int64_t i = 0; i < count; ++i) {
          ASSERT_EQ(x[i], static_cast<float>(world->size())) << i << " of " << count;
          ASSERT_EQ(y[i], world->size()) << i << " of " << count;
        }
      }
    }
  });
}

TEST_P(Cases, COLL_5_HalfTypesAreSummedWideAndRoundedOnce) {
  run([](const std::shared_ptr<Group>& world) {
    for (const int64_t count : {1, 3, 700, 70'000}) {
      for (const bool in_heap : {true, false}) {
        Buffer<Float16> large(*world, count, in_heap);
        Buffer<BFloat16> small(*world, count, in_heap);
        for (int64_t i = 0; i < count; ++i) {
          narrow(40000.0f, large[i]);
          narrow(world->rank() == 0 ? 256.0f : 1.0f, small[i]);
        }
        world->all_reduce(large.data(), count, DType::f16, ReduceOp::average);
        world->all_reduce(small.data(), count, DType::bf16);
        // 257, 258 and 259: bfloat16 has steps of 2 there, and rounds to even.
        const std::vector<float> sums = {256, 258, 260};
        for (int64_t i = 0; i < count; ++i) {
          ASSERT_EQ(widen(large[i]), 40000) << i << " of " << count;
          ASSERT_EQ(widen(small[i]), sums[static_cast<size_t>(world->size()) - 2]) << i;
        }
      }
    }
  });
}

TEST_P(Cases, COLL_6_TextsOfDifferentLengthsComeBackUnchanged) {
  run([](const std::shared_ptr<Group>& world) {
    std::string thousand;
    for (int i = 0; i < 1000; ++i) thousand += "bbb";
    const std::vector<std::string> texts = {"", "a", thousand, std::string("zero \0 inside", 13)};
    for (int turn = 0; turn < 4; ++turn) {
      const auto text = [&](int rank) { return texts[static_cast<size_t>(rank + turn) % 4]; };
      const auto all = world->gather_text(text(world->rank()));
      ASSERT_EQ(static_cast<int>(all.size()), world->size());
      for (int r = 0; r < world->size(); ++r) EXPECT_EQ(all[static_cast<size_t>(r)], text(r));
    }
  });
}

TEST_P(Cases, COLL_7_ARankThatDoesNotComeIsNamedInTime) {
  const auto timeout = 400ms;
  const int ranks = GetParam().ranks;
  const auto start = Clock::now();
  const auto outcomes = outcomes_of(
      GetParam().engine, ranks,
      [&](const std::shared_ptr<Group>& world) {
        std::vector<float> x(1000);
        world->barrier();
        world->broadcast(x.data(), 10, DType::f32, 0);
        if (world->rank() == 1) {
          // Away until every other rank has given up.
          const auto& region = world->endpoint().region();
          const auto others_told = [&] {
            for (int r = 0; r < world->size(); ++r) {
              if (r != 1 && region.status(r).detail != "gave up") return false;
            }
            return true;
          };
          while (!others_told()) usleep(1000);
          return;
        }
        const std::string error = error_of([&] { world->all_reduce(x.data(), 1000, DType::f32); });
        const auto recent = world->endpoint().region().recent_operations(world->rank());
        world->endpoint().set_status(0, "forward", "gave up");
        EXPECT_EQ(recent, (std::vector<std::string>{
                              "barrier on \"world\" #1", "broadcast of 10 float32 on \"world\" #2",
                              "all_reduce of 1000 float32 (sum) on \"world\" #3"}));
        throw CommError(error);
      },
      {.timeout = timeout, .oversubscribed = true});
  EXPECT_LT(Clock::now() - start, timeout + 2s);
  for (int r = 0; r < ranks; ++r) {
    const auto& outcome = outcomes[static_cast<size_t>(r)];
    EXPECT_FALSE(outcome.failed);
    if (r == 1) {
      EXPECT_EQ(outcome.error, "");
      continue;
    }
    EXPECT_THAT(outcome.error, AllOf(HasSubstr("all_reduce on \"world\" #3: no word from rank 1"),
                                     HasSubstr("all_reduce of 1000 float32 (sum)"),
                                     HasSubstr("its last call: broadcast of 10 float32")));
    if (ranks > 2) {
      EXPECT_THAT(outcome.error, HasSubstr(ranks == 3 ? " has arrived" : " have arrived"));
    }
  }
}

// Every rank raises in this very call: a root waits for all descriptors before it returns.
TEST_P(Cases, COLL_8_AStreamOutOfStepIsRefusedOnBothSides) {
  run([](const std::shared_ptr<Group>& world) {
    std::vector<float> floats(25, 1.0f + static_cast<float>(world->rank()));
    const std::vector<float> before = floats;
    int64_t number = 77;
    const std::string error = prompt_error([&] {
      if (world->rank() == 0) {
        world->broadcast(&number, 1, DType::i64, 0);
        world->barrier();  // so short a broadcast waits for nobody: its root looks in the next call
      } else {
        world->all_reduce(floats.data(), 25, DType::f32);
      }
    });
    EXPECT_THAT(error, AllOf(HasSubstr("broadcast of 1 int64 from rank 0"),
                             HasSubstr("all_reduce of 25 float32 (sum)")));
    EXPECT_EQ(number, 77);
    EXPECT_EQ(floats, before);
  });
}

// Each rank takes itself for the root: the same fingerprint but for that.
TEST_P(Cases, COLL_8_RootsThatDifferAreRefusedOnBothSides) {
  run([](const std::shared_ptr<Group>& world) {
    int64_t number = world->rank();
    const std::string error = prompt_error([&] {
      world->broadcast(&number, 1, DType::i64, world->rank());
      world->barrier();
    });
    EXPECT_THAT(error, HasSubstr("came with broadcast of 1 int64 from rank "));
    EXPECT_EQ(number, world->rank());
  });
}

TEST_P(Cases, COLL_9_EmptyAndScalarAmongOthersKeepTheirOrder) {
  run([](const std::shared_ptr<Group>& world) {
    const int n = world->size();
    const std::vector<int64_t> none(static_cast<size_t>(n), 0);
    const std::vector<int64_t> one(static_cast<size_t>(n), 1);
    Buffer<float> normal(*world, 90, true);
    for (int turn = 0; turn < 1000; ++turn) {
      float empty = -7;
      world->all_reduce(&empty, 0, DType::f32);
      world->broadcast(&empty, 0, DType::f32, turn % n);
      world->all_gather(&empty, &empty, none, DType::f32);
      world->reduce_scatter(&empty, &empty, none, DType::f32);
      ASSERT_EQ(empty, -7);
      double scalar = world->rank() + turn;
      world->all_reduce(&scalar, 1, DType::f64);
      ASSERT_EQ(scalar, n * turn + n * (n - 1) / 2);
      std::vector<double> all(static_cast<size_t>(n));
      world->all_gather(&scalar, all.data(), one, DType::f64);
      ASSERT_EQ(all.back(), scalar);
      if (turn % 100 != 0) continue;
      normal.fill(turn, world->rank());
      world->all_reduce(normal.data(), 90, DType::f32);
      ASSERT_TRUE(same_bits(normal[89], expected<float>(ReduceOp::sum, n, turn, 89)));
    }
  });
}

}  // namespace
}  // namespace lockstep::net::testing
