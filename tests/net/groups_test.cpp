// Groups made and freed: as many as one likes, in any order, and nothing of one is met in the next.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/units.h"
#include "lockstep/net/control.h"
#include "tests/net/ranks.h"
#include "tests/net/values.h"
#include "tests/support/resident_memory.h"

namespace lockstep::net::testing {
namespace {

using lockstep::testing::resident_bytes;
using ::testing::HasSubstr;

class Groups : public ::testing::TestWithParam<Engine> {};
INSTANTIATE_TEST_SUITE_P(Engines, Groups, ::testing::Values(Engine::threads, Engine::shm),
                         [](const auto& info) { return name_of(info.param); });

/// Two or more of `ranks` ranks, in some order: the same on all ranks.
std::vector<int> some_ranks(int ranks, uint64_t seed) {
  std::vector<int> order(static_cast<size_t>(ranks));
  std::iota(order.begin(), order.end(), 0);
  for (int r = ranks - 1; r > 0; --r) {
    std::swap(order[r], order[draw(seed, 1, r) % static_cast<uint64_t>(r + 1)]);
  }
  order.resize(2 + draw(seed, 2, 0) % static_cast<uint64_t>(ranks - 1));
  return order;
}

/// A sum of `count` int64: by the direct way, or by a ring when `by_plan`.
void sum(Group& group, int64_t count, bool by_plan, int64_t round) {
  if (by_plan) {
    group.set_algorithms(
        {.rules = {{plan::Collective::all_reduce, plan::Algorithm::ring}}, .hosts = {}});
  }
  std::vector<int64_t> x(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) x[i] = round * 1000 + i * (group.rank() + 1);
  group.all_reduce(x.data(), count, DType::i64);
  const int64_t n = group.size();
  for (int64_t i = 0; i < count; ++i) {
    ASSERT_EQ(x[i], n * round * 1000 + i * n * (n + 1) / 2) << "round " << round;
  }
}

/// Inlined, bounced, staged or by a plan; sometimes with a message that nobody takes.
void use(Group& group, int64_t round) {
  const std::array<int64_t, 5> counts = {1, 20, 1000, 20, 20'000};
  sum(group, counts[static_cast<size_t>(round % 5)], round % 3 == 0, round);
  const int next = (group.rank() + 1) % group.size();
  std::vector<int64_t> message(static_cast<size_t>(1 + round % 200), round);
  if (round % 7 == 0) group.send(message.data(), std::ssize(message), DType::i64, next);
  if (round % 14 == 7) {
    std::vector<int64_t> taken(message.size());
    const int previous = (group.rank() + group.size() - 1) % group.size();
    group.recv(taken.data(), std::ssize(taken), DType::i64, previous);
    ASSERT_EQ(taken, message);
  }
}

// Three times as many as a rank can be in at a time. Rank r holds the last r + 1 groups, so that
// one frees what another still holds.
TEST_P(Groups, AreMadeAndFreedForEverInFlatMemory) {
  constexpr int kRounds = 3100;
  run_on(GetParam(), 4, [](const std::shared_ptr<Group>& world) {
    std::deque<std::shared_ptr<Group>> held;
    int64_t early = 0;
    for (int round = 0; round < kRounds; ++round) {
      const auto ranks = some_ranks(4, static_cast<uint64_t>(round));
      const auto group = world->subgroup(ranks, "of round " + std::to_string(round));
      ASSERT_EQ(group != nullptr, std::count(ranks.begin(), ranks.end(), world->rank()) == 1);
      if (group) use(*group, round);
      if (!held.empty() && held.back()) sum(*held.back(), 3, false, round);
      held.push_back(group);
      while (std::ssize(held) > world->rank() + 1) held.pop_front();
      if (round == kRounds / 10) early = resident_bytes();
    }
    EXPECT_LT(resident_bytes(), early + 4 * MiB);
  });
}

TEST_P(Groups, WhatOneRankHasFreedAnotherStillReads) {
  run_on(GetParam(), 3, [](const std::shared_ptr<Group>& world) {
    const auto others = world->subgroup({0, 2}, "others");
    auto group = world->subgroup({0, 1}, "old");
    std::vector<int32_t> x(5000);
    if (world->rank() == 1) {
      world->barrier();  // rank 0 has freed its handle long ago, and made others
      for (const int32_t number : {17, 18}) {
        group->recv(x.data(), 5000, DType::i32, 0);
        EXPECT_EQ(x, std::vector<int32_t>(5000, number));
      }
      return;
    }
    if (world->rank() == 0) {
      for (const int32_t number : {17, 18}) {
        std::fill(x.begin(), x.end(), number);
        group->send(x.data(), 5000, DType::i32, 1);
      }
    }
    group.reset();
    for (int i = 0; i < 20; ++i) {
      const auto next = others->subgroup({0, 1}, "next");
      std::fill(x.begin(), x.end(), 100 + i);
      if (next->rank() == 0) {
        next->send(x.data(), 5000, DType::i32, 1);
      } else {
        next->recv(x.data(), 5000, DType::i32, 0);
      }
      next->barrier();
    }
    world->barrier();
  });
}

TEST_P(Groups, AreRefusedOnAllRanksWhenOneIsInTooMany) {
  run_on(GetParam(), 2, [](const std::shared_ptr<Group>& world) {
    const auto alone = world->subgroup({1}, "alone");
    std::vector<std::shared_ptr<Group>> groups;
    while (std::ssize(groups) < kMaxGroups - 2) groups.push_back(world->subgroup({0, 1}, "pair"));
    EXPECT_THAT(error_of([&] {
                  world->subgroup({0, 1}, "one more");
                }),
                HasSubstr("subgroup \"one more\": rank 1 is in 1024 groups"));
    groups.erase(groups.begin());
    for (int i = 0; i < 3; ++i) {
      world->barrier();  // both have left
      sum(*world->subgroup({1, 0}, "one more"), 100, false, i);
    }
  });
}

// Ranks may make groups by several threads: what they take does not meet.
TEST_P(Groups, AreMadeByTwoThreadsOfARankAtOnce) {
  run_on(GetParam(), 3, [](const std::shared_ptr<Group>& world) {
    const auto mine = world->subgroup({0, 1, 2}, "a");
    const auto theirs = world->subgroup({2, 1, 0}, "b");
    const auto make = [](Group& parent, uint64_t seed) {
      std::deque<std::shared_ptr<Group>> held;
      for (int round = 0; round < 300; ++round) {
        held.push_back(parent.subgroup(some_ranks(3, seed + static_cast<uint64_t>(round)), "c"));
        if (held.back()) sum(*held.back(), 20, false, round);
        if (held.size() > 5) held.pop_front();
      }
    };
    std::jthread other([&] { make(*theirs, 5000); });
    make(*mine, 100);
  });
}

TEST_P(Groups, AreFreedBrokenAndMadeAgain) {
  run_on(GetParam(), 3, [](const std::shared_ptr<Group>& world) {
    for (int round = 0; round < 40; ++round) {
      auto broken = world->subgroup({0, 1, 2}, "broken");
      sum(*broken, 1000, round % 2 == 0, round);
      // The mismatch ends it in the middle of a call, and one rank frees it before the others know.
      EXPECT_THAT(error_of([&] { sum(*broken, 10 + broken->rank() % 2, false, round); }),
                  HasSubstr("on \"broken\" #2: "));
      broken.reset();
      use(*world->subgroup({2, 0, 1}, "whole"), round);
    }
  });
}

TEST(GroupNames, ACallOfAGroupSinceFreedIsNotTakenForAnothers) {
  run_on(Engine::threads, 1, [](const std::shared_ptr<Group>& world) {
    world->subgroup({0}, "first")->barrier();
    const auto last_calls = [&] { return world->endpoint().region().recent_operations(0); };
    EXPECT_EQ(last_calls().back(), "barrier on \"first\" #1");
    const auto second = world->subgroup({0}, "second");
    EXPECT_THAT(last_calls(), ::testing::Contains("barrier on a group since freed #1"));
    second->barrier();
    EXPECT_EQ(last_calls().back(), "barrier on \"second\" #1");
  });
}

}  // namespace
}  // namespace lockstep::net::testing
