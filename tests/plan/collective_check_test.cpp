// The checker itself: each kind of fault, put into a sound plan, is found and named.

#include "lockstep/plan/collective_check.h"

#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>

#include "tests/plan/collective_cases.h"

namespace lockstep::plan {
namespace {

/// What check() says of `plan`; empty if it holds.
std::string fault_of(const CollectivePlan& plan) {
  try {
    check(plan);
    return "";
  } catch (const std::logic_error& error) {
    return error.what();
  }
}

/// What check() says of the ring over 3 ranks, 48 elements, after `break_it`.
std::string ring_fault(const std::function<void(std::vector<RankSteps>&)>& break_it) {
  CollectivePlan plan = plan_all_reduce(Algorithm::ring, 3, 48);
  EXPECT_EQ(fault_of(plan), "");
  break_it(plan.by_rank);
  return fault_of(plan);
}

Transfer& transfer(RankSteps& steps, size_t round, Direction direction) {
  for (Transfer& one : steps.rounds[round].transfers) {
    if (one.direction == direction) return one;
  }
  throw std::out_of_range("no such transfer");
}

TEST(CollectiveCheck, FindsASendWithoutReceive) {
  EXPECT_EQ(ring_fault([](auto& ranks) {
              auto& transfers = ranks[1].rounds[3].transfers;
              std::erase_if(transfers,
                            [](const Transfer& t) { return t.direction == Direction::receive; });
            }),
            "rank 0, round 3: waits for rank 1 to receive, which has finished");
}

TEST(CollectiveCheck, FindsAMessageOfTwoSizes) {
  EXPECT_EQ(
      ring_fault([](auto& ranks) { transfer(ranks[0], 0, Direction::send).place.range.hi -= 1; }),
      "rank 1, round 0: receives 16 elements from rank 0, which sends 15");
}

TEST(CollectiveCheck, FindsAPeerThatIsNone) {
  EXPECT_EQ(ring_fault([](auto& ranks) { transfer(ranks[2], 1, Direction::send).peer = 3; }),
            "rank 2, round 1: its peer is 3");
  EXPECT_EQ(ring_fault([](auto& ranks) { transfer(ranks[2], 1, Direction::send).peer = 2; }),
            "rank 2, round 1: its peer is 2");
}

TEST(CollectiveCheck, FindsPlacesOutsideTheirBuffers) {
  EXPECT_EQ(ring_fault([](auto& ranks) { ranks[1].scratch = 15; }),
            "rank 1, round 0: buffer 1 [0,16) reaches out of 15 elements");
}

TEST(CollectiveCheck, FindsMemoryInFlightTwice) {
  // Received where another transfer of the round sends from.
  EXPECT_EQ(ring_fault([](auto& ranks) {
              transfer(ranks[0], 0, Direction::receive).place =
                  transfer(ranks[0], 0, Direction::send).place;
            }),
            "rank 0, round 0: buffer 0 [32,48) and buffer 0 [32,48) are in flight together, and "
            "one of them is received");

  // A long send reaches over a receive, with a short send between their beginnings.
  CollectivePlan plan = plan_all_gather(Algorithm::direct, {8, 8});
  auto& transfers = plan.by_rank[0].rounds[0].transfers;
  transfers = {{Direction::send, 1, {kResult, {0, 9}}},
               {Direction::send, 1, {kResult, {2, 4}}},
               {Direction::receive, 1, {kResult, {8, 16}}}};
  EXPECT_EQ(fault_of(plan),
            "rank 0, round 0: buffer 0 [8,16) and buffer 0 [0,9) are in flight together, and one "
            "of them is received");

  // Two sends of the same memory are no fault: the direct all-gather has them.
  EXPECT_EQ(fault_of(plan_all_gather(Algorithm::direct, {4, 4, 4})), "");
}

TEST(CollectiveCheck, FindsRoundsOutOfOrder) {
  EXPECT_EQ(ring_fault([](auto& ranks) { std::swap(ranks[0].rounds[0], ranks[0].rounds[1]); }),
            "rank 0, round 0: rounds do not come in rising order");
}

/// Two ranks that exchange in one round or, if not, each send first and receive then.
CollectivePlan exchange(bool in_one_round) {
  CollectivePlan plan = plan_all_gather(Algorithm::direct, {1, 1});
  if (in_one_round) return plan;
  for (RankSteps& steps : plan.by_rank) {
    CollectiveRound second{1, {}, {}};
    auto& first = steps.rounds[0].transfers;
    for (const Transfer& one : first) {
      if (one.direction == Direction::receive) second.transfers.push_back(one);
    }
    std::erase_if(first, [](const Transfer& t) { return t.direction == Direction::receive; });
    steps.rounds.push_back(second);
  }
  return plan;
}

TEST(CollectiveCheck, SendsWaitForTheirReceives) {
  EXPECT_EQ(fault_of(exchange(true)), "");
  // Buffered sends would get through; rendezvous does not.
  EXPECT_EQ(fault_of(exchange(false)),
            "rank 0, round 0: waits for rank 1 to receive, which waits in round 0");
}

TEST(CollectiveCheck, FindsACycleOfWaits) {
  // Each of three ranks receives before it sends.
  CollectivePlan plan = plan_all_gather(Algorithm::ring, {1, 1, 1});
  for (RankSteps& steps : plan.by_rank) {
    CollectiveRound& first = steps.rounds[0];
    CollectiveRound sends{1, {}, {}};
    sends.transfers.push_back(transfer(steps, 0, Direction::send));
    std::erase_if(first.transfers,
                  [](const Transfer& t) { return t.direction == Direction::send; });
    steps.rounds[1].number = 2;
    steps.rounds.insert(steps.rounds.begin() + 1, sends);
  }
  EXPECT_NE(fault_of(plan).find("to send, which waits in round 0"), std::string::npos);
}

TEST(CollectiveCheck, MessagesOfAPairMatchInOrder) {
  // Two messages from 1 to 0 of different lengths, received in the other order.
  CollectivePlan plan = plan_all_gather(Algorithm::bruck, {1, 2, 3});
  EXPECT_EQ(fault_of(plan), "");
  const auto receive = [](int64_t lo, int64_t hi) {
    return Transfer{Direction::receive, 1, {kResult, {lo, hi}}};
  };
  const auto send = [](int64_t lo, int64_t hi) {
    return Transfer{Direction::send, 0, {kResult, {lo, hi}}};
  };
  plan.by_rank[1].given = {{{kResult, {0, 6}}, 1, 0}};
  plan.by_rank[1].rounds = {{0, {send(1, 3), send(3, 6)}, {}}};
  plan.by_rank[0].rounds = {{0, {receive(3, 6), receive(1, 3)}, {}}};
  plan.by_rank[2].rounds.clear();
  EXPECT_EQ(fault_of(plan), "rank 0, round 0: receives 3 elements from rank 1, which sends 2");
}

TEST(CollectiveCheck, FindsWhatIsReadBeforeItIsWritten) {
  EXPECT_EQ(ring_fault([](auto& ranks) { ranks[1].given.clear(); }),
            "rank 1, round 0: buffer 0 [0,16) is read before all of it was written");
}

TEST(CollectiveCheck, FindsATermAddedTwice) {
  EXPECT_EQ(ring_fault([](auto& ranks) {
              auto& local = ranks[1].rounds[0].local;
              local.push_back(local[0]);
            }),
            "rank 1, round 0: term 0 is added twice");
}

TEST(CollectiveCheck, FindsASumThatLacksATerm) {
  EXPECT_EQ(ring_fault([](auto& ranks) {
              // What came is dropped: the rank sends on its own term alone.
              ranks[1].rounds[0].local.clear();
            }),
            "rank 0, at the end: buffer 0 [0,48) holds a sum that lacks a term");
}

TEST(CollectiveCheck, FindsUnlikeElementsAdded) {
  EXPECT_EQ(ring_fault([](auto& ranks) {
              transfer(ranks[0], 0, Direction::send).place.range = {0, 16};
            }),
            "rank 1, round 0: element 0 is added to element 32");
}

TEST(CollectiveCheck, FindsElementsInAnothersPlace) {
  EXPECT_EQ(ring_fault([](auto& ranks) {
              // The first round of the all-gather: rank 0 sends another slice than its own.
              transfer(ranks[0], 2, Direction::send).place.range = {16, 32};
            }),
            "rank 1, at the end: buffer 0 [0,48) holds element 16 in place of 0");
}

TEST(CollectiveCheck, FindsResultsThatAreNotWritten) {
  CollectivePlan plan = plan_broadcast(Algorithm::direct, 3, 0, 8);
  std::erase_if(plan.by_rank[0].rounds[0].transfers, [](const Transfer& t) { return t.peer == 2; });
  plan.by_rank[2].rounds.clear();
  EXPECT_EQ(fault_of(plan), "rank 2, at the end: buffer 0 [0,8) was not written everywhere");
}

TEST(CollectiveCheck, FindsATermThatIsNone) {
  EXPECT_EQ(ring_fault([](auto& ranks) { ranks[1].given[0].term = 3; }),
            "rank 1, at the start: buffer 0 [0,48) holds term 3 of 3");
}

TEST(CollectiveCheck, FindsTheWrongTerm) {
  CollectivePlan plan = plan_all_gather(Algorithm::direct, {4, 4, 4});
  plan.by_rank[0].promised[1].term = 2;
  EXPECT_EQ(fault_of(plan), "rank 0, at the end: buffer 0 [4,8) does not hold term 2");
}

TEST(CollectiveCheck, FindsSumsGroupedInTwoWays) {
  // Rank 1 adds as (0 + 1) + 2, rank 0 as 0 + (1 + 2): complete, and not equal.
  CollectivePlan plan = plan_all_reduce(Algorithm::direct, 3, 0);
  const auto own = Place{kResult, {0, 1}};
  const auto other = [](int64_t i) { return Place{kScratch, {i, i + 1}}; };
  for (int rank = 0; rank < 3; ++rank) {
    RankSteps& steps = plan.by_rank[static_cast<size_t>(rank)];
    steps.result = 1;
    steps.scratch = 2;
    steps.given = {{own, rank, 0}};
    steps.promised = {{own, kSum, 0}};
    CollectiveRound round{0, {}, {}};
    std::vector<Place> sources;
    int64_t slot = 0;
    for (int peer = 0; peer < 3; ++peer) {
      sources.push_back(peer == rank ? own : other(slot++));
      if (peer == rank) continue;
      round.transfers.push_back({Direction::send, peer, own});
      round.transfers.push_back({Direction::receive, peer, sources.back()});
    }
    round.local = {{own, sources, {{0, 1}, {0, 2}}}};
    steps.rounds = {round};
  }
  EXPECT_EQ(fault_of(plan), "");
  EXPECT_TRUE(is_canonical(plan));
  plan.by_rank[1].rounds[0].local[0].additions = {{1, 2}, {0, 1}};
  EXPECT_EQ(fault_of(plan),
            "rank 1, at the end: element 0 was added in another order than on a rank before");
  for (RankSteps& steps : plan.by_rank) {
    steps.rounds[0].local[0].additions = {{1, 2}, {0, 1}};
  }
  EXPECT_FALSE(is_canonical(plan));
  // The order of two operands is no matter.
  for (RankSteps& steps : plan.by_rank) {
    auto& step = steps.rounds[0].local[0];
    std::swap(step.sources[0], step.sources[1]);
    step.additions = {{0, 1}, {0, 2}};
  }
  EXPECT_TRUE(is_canonical(plan));
}

TEST(CollectiveCheck, FindsUnsoundLocalSteps) {
  const auto broken = [](const std::function<void(LocalStep&)>& break_it) {
    return ring_fault([&](auto& ranks) { break_it(ranks[0].rounds[0].local[0]); });
  };
  EXPECT_EQ(broken([](LocalStep& step) { step.sources.clear(); }),
            "rank 0, round 0: a local step without sources");
  EXPECT_EQ(broken([](LocalStep& step) { step.additions[0].from = 2; }),
            "rank 0, round 0: an addition beyond 2 sources");
  EXPECT_EQ(broken([](LocalStep& step) { step.sources[1].range.hi += 1; }),
            "rank 0, round 0: buffer 0 [16,32) is set from buffer 0 [16,33)");
  EXPECT_EQ(broken([](LocalStep& step) {
              step.into.range.lo += 1;
              step.into.range.hi += 1;
            }),
            "rank 0, round 0: buffer 0 [17,33) overlaps its source buffer 0 [16,32)");
}

}  // namespace
}  // namespace lockstep::plan
