// Engine gloo: the suite of all engines, its messages, and what becomes of the others when a rank
// is lost.
#include "lockstep/comm/engines/c10d.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <csignal>
#include <latch>

#include "lockstep/base/error.h"
#include "lockstep/comm/engines/exchange_store.h"
#include "lockstep/comm/engines/no_sigpipe.h"
#include "lockstep/comm/process_group.h"
#include "tests/net/algorithm_suite.h"
#include "tests/net/mixed_calls.h"

namespace lockstep::net::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

/// Null where Lockstep was built without Gloo.
std::shared_ptr<MessageEngine> gloo(milliseconds timeout) {
  try {
    return make_gloo_engine(timeout);
  } catch (const EnvironmentError&) {
    return nullptr;
  }
}

EndpointOptions over_gloo(milliseconds timeout = patient().timeout) {
  EndpointOptions options = patient();
  options.timeout = timeout;
  options.engine = gloo(timeout);
  return options;
}

std::vector<AlgorithmCase> gloo_cases() {
  std::vector<AlgorithmCase> cases;
  if (!over_gloo().engine) return cases;
  cases.push_back({Engine::shm, 2, over_gloo()});
  cases.push_back({Engine::threads, 3, over_gloo()});
  cases.push_back({Engine::shm, 5, over_gloo()});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Gloo, Algorithms, ::testing::ValuesIn(gloo_cases()),
                         [](const auto& info) { return name_of(info.param); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Algorithms);

class GlooEngine : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!over_gloo().engine) GTEST_SKIP() << "built without Gloo: is libgloo-dev installed?";
  }
};

/// Runs `body(transport, rank)` on threads that are connected without a region.
void on_transports(int ranks, const std::function<void(Transport&, int)>& body) {
  run_on(Engine::threads, ranks, [&](const std::shared_ptr<Group>& group) {
    const auto engine = gloo(milliseconds(20'000));
    const Exchange exchange = [&](const std::string& mine) { return group->gather_text(mine); };
    body(*engine->connect(group->members(), group->rank(), 0, exchange), group->rank());
    group->barrier();
  });
}

void finish(Transport& transport) {
  while (!transport.progress()) transport.nap();
}

/// What progress() throws within 20 seconds.
std::string error_of_progress(Transport& transport) {
  return error_of([&] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!transport.progress() && std::chrono::steady_clock::now() < end) transport.nap();
  });
}

TEST_F(GlooEngine, MessagesKeepTheirOrderAndTheirSizes) {
  on_transports(2, [](Transport& transport, int rank) {
    std::vector<std::vector<int>> sent;
    std::vector<std::vector<int>> received;
    int64_t bytes = 0;
    for (int i = 0; i < 60; ++i) {
      const size_t count = i % 20 == 7 ? 3'000'000 : static_cast<size_t>(i * i % 17);
      sent.emplace_back(count, 100 * rank + i);
      received.emplace_back(count, -1);
      bytes += static_cast<int64_t>(count * sizeof(int));
    }
    const auto size = [](const std::vector<int>& x) {
      return static_cast<int64_t>(x.size() * sizeof(int));
    };
    // One rank posts what it receives before, the other after what it sends.
    for (auto& x : sent) {
      if (rank == 0) transport.send(1, x.data(), size(x));
    }
    for (auto& x : received) transport.receive(1 - rank, x.data(), size(x));
    for (auto& x : sent) {
      if (rank == 1) transport.send(0, x.data(), size(x));
    }
    EXPECT_TRUE(transport.awaits(1 - rank));
    EXPECT_FALSE(transport.awaits(rank));
    finish(transport);
    EXPECT_FALSE(transport.awaits(1 - rank));
    EXPECT_EQ(transport.bytes_received(), bytes);
    for (int i = 0; i < 60; ++i) {
      const auto& x = received[static_cast<size_t>(i)];
      EXPECT_EQ(std::count(x.begin(), x.end(), 100 * (1 - rank) + i), std::ssize(x)) << i;
    }
  });
}

/// Rank 2's message is there although rank 1's, started before it, is not.
TEST_F(GlooEngine, APeerIsAwaitedOnlyForWhatItOwes) {
  std::latch seen(1);
  on_transports(3, [&](Transport& transport, int rank) {
    int x = rank;
    if (rank == 0) {
      int from_1 = -1;
      int from_2 = -1;
      transport.receive(1, &from_1, sizeof from_1);
      transport.receive(2, &from_2, sizeof from_2);
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
      while (transport.awaits(2) && std::chrono::steady_clock::now() < end) {
        EXPECT_FALSE(transport.progress());
        transport.nap();
      }
      EXPECT_FALSE(transport.awaits(2));
      EXPECT_TRUE(transport.awaits(1));
      EXPECT_EQ(from_2, 2);
      seen.count_down();
      finish(transport);
      EXPECT_EQ(from_1, 1);
      return;
    }
    if (rank == 1) seen.wait();
    transport.send(0, &x, sizeof x);
    finish(transport);
  });
}

TEST_F(GlooEngine, AnErrorIsHeldBackUntilTheCauseWouldBeKnown) {
  run_on(Engine::threads, 2, [&](const std::shared_ptr<Group>& group) {
    const Exchange exchange = [&](const std::string& mine) { return group->gather_text(mine); };
    auto transport =
        gloo(milliseconds(20'000))->connect(group->members(), group->rank(), 0, exchange);
    if (group->rank() == 1) {
      transport.reset();
    } else {
      const auto start = std::chrono::steady_clock::now();
      int x = 0;
      transport->receive(1, &x, sizeof x);
      EXPECT_THAT(error_of_progress(*transport), HasSubstr("engine gloo lost rank 1: "));
      EXPECT_GT(std::chrono::steady_clock::now() - start, milliseconds(400));
      EXPECT_TRUE(transport->awaits(1)) << "it would not be taken for the missing one";
    }
    group->barrier();
  });
}

TEST_F(GlooEngine, WhatIsAbandonedIsNotWritten) {
  on_transports(2, [](Transport& transport, int rank) {
    std::vector<int> x(2'000'000, rank);
    const auto bytes = static_cast<int64_t>(x.size() * sizeof(int));
    if (rank == 1) {
      std::this_thread::sleep_for(milliseconds(50));
      transport.send(0, x.data(), bytes);
      EXPECT_THAT(error_of_progress(transport), HasSubstr("engine gloo lost rank 0: "));
      return;
    }
    transport.receive(1, x.data(), bytes);
    EXPECT_FALSE(transport.progress());
    transport.abandon();
    std::this_thread::sleep_for(milliseconds(200));
    EXPECT_EQ(std::count(x.begin(), x.end(), 0), std::ssize(x));
  });
}

/// The sequence of all engines, with groups that are connected and dropped on the way. Longer:
/// long/mixed_gloo_test.cpp.
TEST_F(GlooEngine, MixedCallsAreAllRight) {
  const auto body = [](const std::shared_ptr<Group>& world) { MixedCalls(world, 13).run(1200); };
  run_on(Engine::shm, 4, body, over_gloo());
}

/// Collectives under way on three groups of a rank, each on a thread of its own.
TEST_F(GlooEngine, GroupsDoNotMixTheirMessages) {
  const auto body = [](const std::shared_ptr<Group>& world) {
    ProcessGroup all(world);
    const int rank = all.rank();
    const auto pair = all.subgroup(rank < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3}, "a");
    const auto cross =
        all.subgroup(rank % 2 == 0 ? std::vector<int>{0, 2} : std::vector<int>{1, 3}, "b");
    for (int turn = 0; turn < 20; ++turn) {
      std::vector<at::Tensor> tensors;
      std::vector<lockstep::Work> works;
      for (ProcessGroup* group : {&all, pair.get(), cross.get()}) {
        tensors.push_back(at::full({turn % 5 == 0 ? 200'003 : 1501}, 1 << rank, at::kFloat));
        works.push_back(group->all_reduce(tensors.back()));
        tensors.push_back(at::full({3001}, rank, at::kInt));
        works.push_back(group->broadcast(tensors.back(), 1));
      }
      for (lockstep::Work& work : works) work.wait();
      const std::vector<float> expected = {15,
                                           1,
                                           rank < 2 ? 3.0f : 12.0f,
                                           rank < 2 ? 1.0f : 3.0f,
                                           rank % 2 == 0 ? 5.0f : 10.0f,
                                           rank % 2 == 0 ? 2.0f : 3.0f};
      for (size_t i = 0; i < tensors.size(); ++i) {
        ASSERT_TRUE((tensors[i] == expected[i]).all().item<bool>()) << i << " in turn " << turn;
      }
    }
  };
  run_on(Engine::shm, 4, body, over_gloo());
}

TEST_F(GlooEngine, AKilledRankIsNamedByTheOthers) {
  const auto start = std::chrono::steady_clock::now();
  for (const int microseconds : {0, 2000, 20'000}) {
    const auto body = [&](const std::shared_ptr<Group>& group) {
      group->set_algorithms(table_of(Collective::all_reduce, Algorithm::ring, 3));
      Buffer<float> x(*group, 500'000, group->rank() != 0);
      x.fill(1, group->rank());
      group->barrier();
      std::jthread killer;
      if (group->rank() == 1) {
        killer = std::jthread([&] {
          std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
          raise(SIGKILL);
        });
      }
      for (int i = 0; i < 10'000; ++i) group->all_reduce(x.data(), x.count(), DType::f32);
    };
    const auto outcomes = outcomes_of(Engine::shm, 3, body, over_gloo());
    EXPECT_EQ(outcomes[1].signal, SIGKILL);
    for (const int rank : {0, 2}) {
      EXPECT_EQ(outcomes[static_cast<size_t>(rank)].signal, 0);
      EXPECT_THAT(outcomes[static_cast<size_t>(rank)].error, HasSubstr("rank 1 is gone"));
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(8));
}

TEST_F(GlooEngine, AStoppedRankIsNamedWithinTheTimeout) {
  const auto body = [](const std::shared_ptr<Group>& group) {
    Buffer<float> x(*group, 2'000'000, true);
    x.fill(1, group->rank());
    const auto pids = group->gather_text(std::to_string(getpid()));
    if (group->rank() == 2) {
      std::jthread([] {
        std::this_thread::sleep_for(milliseconds(20));
        raise(SIGSTOP);
      }).detach();
    }
    const std::string error = error_of([&] {
      for (int i = 0; i < 10'000; ++i) group->all_reduce(x.data(), x.count(), DType::f32);
    });
    if (group->rank() == 0) kill(std::stoi(pids[2]), SIGKILL);
    throw CommError(error);
  };
  const auto outcomes = outcomes_of(Engine::shm, 3, body, over_gloo(milliseconds(700)));
  EXPECT_EQ(outcomes[2].signal, SIGKILL);
  // A rank whose next message waits for rank 2's is missing too, for those who are ahead of it.
  EXPECT_THAT(outcomes[0].error + outcomes[1].error,
              ContainsRegex("no word from rank(s [01] and)? 2 for"));
}

TEST(NoSigpipe, AWriteToAClosedPipeOnlyFails) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  {
    const NoSigpipe guard;
    EXPECT_EQ(write(ends[1], "x", 1), -1);
  }
  close(ends[1]);
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  EXPECT_EQ(sigismember(&blocked, SIGPIPE), 0) << "the mask is as before";
}

TEST(ExchangeStore, ALookUpInVainIsARound) {
  std::vector<std::string> said;
  const std::vector<std::string> answers = {"first 1\n 2", ""};
  ExchangeStore store([&](const std::string& mine) {
    said.push_back(mine);
    return said.size() == 1 ? std::vector<std::string>{mine, ""} : answers;
  });
  store.set("own", {'a', 0, ' ', 'b'});
  EXPECT_EQ(store.get("own"), (std::vector<uint8_t>{'a', 0, ' ', 'b'}));
  EXPECT_EQ(said.size(), 1u) << "what is known is not asked for";
  EXPECT_EQ(store.get("first"), (std::vector<uint8_t>{'1', '\n', ' ', '2'}));
  EXPECT_EQ(said.size(), 2u);
  EXPECT_EQ(store.getNumKeys(), 2);
  EXPECT_THROW(store.wait({"own", "third"}), CommError);
}

}  // namespace
}  // namespace lockstep::net::testing
