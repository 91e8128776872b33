// Every algorithm over the region's messages, and what happens when a rank is lost in a plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "lockstep/net/transport.h"
#include "tests/net/algorithm_suite.h"

namespace lockstep::net::testing {
namespace {

using ::testing::HasSubstr;

std::vector<AlgorithmCase> region_cases() {
  std::vector<AlgorithmCase> cases;
  for (const int ranks : {1, 2, 3, 4, 5, 8}) cases.push_back({Engine::threads, ranks});
  for (const int ranks : {2, 3, 4}) cases.push_back({Engine::shm, ranks});
  for (const auto& [hosts, ranks] : {std::pair{2, 2}, {2, 4}, {2, 6}, {3, 3}, {4, 8}}) {
    cases.push_back({.engine = Engine::threads, .ranks = ranks, .hosts = hosts});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Engines, Algorithms, ::testing::ValuesIn(region_cases()),
                         [](const auto& info) { return name_of(info.param); });

TEST(AlgorithmFaults, RanksWithOtherTablesAreAMismatch) {
  const auto outcomes = outcomes_of(Engine::shm, 2, [](const std::shared_ptr<Group>& group) {
    const Algorithm mine = group->rank() == 0 ? Algorithm::ring : Algorithm::halving;
    group->set_algorithms(table_of(Collective::all_reduce, mine, 2));
    float x = 1;
    group->all_reduce(&x, 1, DType::f32);
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_THAT(outcome.error, HasSubstr("ring"));
    EXPECT_THAT(outcome.error, HasSubstr("halving"));
  }
}

/// A rank that is killed in the middle of a plan: whenever that is, the others hear of it.
TEST(AlgorithmFaults, AKilledRankEndsThePlanOfTheOthers) {
  for (const int microseconds : {0, 300, 2000, 9000}) {
    const auto outcomes = outcomes_of(Engine::shm, 3, [&](const std::shared_ptr<Group>& group) {
      group->set_algorithms(table_of(Collective::all_reduce, Algorithm::ring, 3));
      Buffer<float> x(*group, 2'000'000, group->rank() != 0);
      x.fill(1, group->rank());
      group->barrier();
      std::jthread killer;
      if (group->rank() == 1) {
        killer = std::jthread([&] {
          std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
          raise(SIGKILL);
        });
      }
      for (int i = 0; i < 1000; ++i) group->all_reduce(x.data(), x.count(), DType::f32);
    });
    EXPECT_EQ(outcomes[1].signal, SIGKILL);
    for (const int rank : {0, 2}) {
      EXPECT_THAT(outcomes[static_cast<size_t>(rank)].error, HasSubstr("rank 1 is gone"));
    }
  }
}

/// Messages of four whole pieces and a short one, which comes to lie where the first one was: what
/// a rank counts as received is of the piece that it took, though the sender be quicker.
TEST(RegionTransport, APieceMayFollowWhereAnotherWasTaken) {
  EndpointOptions options = patient();
  options.timeout = std::chrono::milliseconds(5'000);
  options.at_point = [](Point point) {
    if (point == Point::taken) usleep(5000);
  };
  const auto body = [](const std::shared_ptr<Group>& group) {
    group->set_algorithms(table_of(Collective::all_reduce, Algorithm::ring, 2));
    std::vector<uint8_t> x(2 * (4 * 256 * 1024 + 16));
    for (int call = 0; call < 3; ++call) {
      std::fill(x.begin(), x.end(), static_cast<uint8_t>(call + group->rank()));
      group->all_reduce(x.data(), std::ssize(x), DType::u8);
      const auto wanted = static_cast<uint8_t>(2 * call + 1);
      ASSERT_EQ(std::count(x.begin(), x.end(), wanted), std::ssize(x)) << call;
    }
  };
  run_on(Engine::shm, 2, body, options);
}

/// One that stops in the middle of a plan is named within the timeout.
TEST(AlgorithmFaults, ARankThatStopsInAPlanIsNamed) {
  const auto start = std::chrono::steady_clock::now();
  const auto outcomes =
      outcomes_of(Engine::threads, 3,
                  [](const std::shared_ptr<Group>& group) {
                    group->set_algorithms(table_of(Collective::all_reduce, Algorithm::ring, 3));
                    group->barrier();
                    if (group->rank() == 2) {
                      std::this_thread::sleep_for(std::chrono::milliseconds(1200));
                      return;
                    }
                    float x = 1;
                    group->all_reduce(&x, 1, DType::f32);
                  },
                  {.timeout = std::chrono::milliseconds(500), .oversubscribed = true});
  for (const int rank : {0, 1}) {
    EXPECT_THAT(outcomes[static_cast<size_t>(rank)].error, HasSubstr("rank 2"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

/// Cannot connect rank 1.
class BrokenEngine final : public MessageEngine {
 public:
  const char* name() const override { return "broken"; }
  std::unique_ptr<Transport> connect(const std::vector<int>&, int rank, int,
                                     const Exchange& exchange) override {
    if (rank == 1) throw std::runtime_error("no route");
    exchange("here");
    return nullptr;
  }
};

TEST(MessageEngines, RanksThatCannotBeConnectedAllSayWhy) {
  EndpointOptions options = patient();
  options.engine = std::make_shared<BrokenEngine>();
  const auto nothing = [](const std::shared_ptr<Group>&) { FAIL() << "the rank has joined"; };
  for (const Engine engine : {Engine::threads, Engine::shm}) {
    for (const Outcome& outcome : outcomes_of(engine, 3, nothing, options)) {
      EXPECT_THAT(outcome.error, HasSubstr("engine broken cannot connect the ranks: no route"));
      EXPECT_FALSE(outcome.failed);
    }
  }
}

/// Its messages never arrive.
class SilentEngine final : public MessageEngine {
 public:
  const char* name() const override { return "silent"; }
  std::unique_ptr<Transport> connect(const std::vector<int>&, int, int, const Exchange&) override {
    return std::make_unique<Silence>(abandoned);
  }
  void finish() override { late_when_finished += late; }

  std::atomic<int> abandoned{0};
  std::atomic<int> late{0};
  std::atomic<int> late_when_finished{0};

 private:
  class Silence final : public Transport {
   public:
    explicit Silence(std::atomic<int>& abandoned) : abandoned_(abandoned) {}
    void send(int, const void*, int64_t) override {}
    void receive(int, void*, int64_t) override {}
    bool progress() override { return false; }
    bool awaits(int) const override { return true; }
    void nap() override { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }
    void abandon() override { ++abandoned_; }

   private:
    std::atomic<int>& abandoned_;
  };
};

TEST(MessageEngines, WhatAFailedCallStartedIsAbandoned) {
  const auto engine = std::make_shared<SilentEngine>();
  EndpointOptions options = patient();
  options.timeout = std::chrono::milliseconds(300);
  options.engine = engine;
  const auto sum = [](const std::shared_ptr<Group>& group) {
    float x = 1;
    group->all_reduce(&x, 1, DType::f32);
  };
  for (const Outcome& outcome : outcomes_of(Engine::threads, 2, sum, options)) {
    EXPECT_NE(outcome.error, "");
  }
  EXPECT_EQ(engine->abandoned, 2);
}

TEST(MessageEngines, RanksLeaveTogether) {
  const auto engine = std::make_shared<SilentEngine>();
  EndpointOptions options = patient();
  options.engine = engine;
  const auto be_late = [&](const std::shared_ptr<Group>& group) {
    if (group->rank() != 1) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    engine->late = 1;
  };
  run_on(Engine::threads, 3, be_late, options);
  EXPECT_EQ(engine->late_when_finished, 3) << "a rank left before the last was through";
}

}  // namespace
}  // namespace lockstep::net::testing
