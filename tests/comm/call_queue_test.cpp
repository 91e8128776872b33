// Order, lifetimes and errors of a group's calls, without any peer.
#include "lockstep/comm/detail/call_queue.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <future>
#include <latch>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::detail {
namespace {

std::string thread_name() {
  char name[16] = {};
  pthread_getname_np(pthread_self(), name, sizeof(name));
  return name;
}

TEST(CallQueue, SmallCallsRunInTheCallersThread) {
  auto queue = std::make_shared<CallQueue>("dp");
  std::thread::id ran_on;
  const auto state = queue->start([&] { ran_on = std::this_thread::get_id(); }, true);
  EXPECT_TRUE(state->done());
  EXPECT_EQ(ran_on, std::this_thread::get_id());
}

TEST(CallQueue, TheThreadBearsTheGroupsName) {
  auto queue = std::make_shared<CallQueue>("data-parallel");
  std::promise<std::string> name;
  const auto state = queue->start([&] { name.set_value(thread_name()); }, false);
  EXPECT_EQ(name.get_future().get(), "ls-comm-data-pa");
  queue->wait(*state);
}

TEST(CallQueue, NothingOvertakes) {
  auto queue = std::make_shared<CallQueue>("dp");
  std::latch begun(1), release(1);
  std::vector<int> order;
  std::vector<std::shared_ptr<Work::State>> states;
  states.push_back(queue->start(
      [&] {
        begun.count_down();
        release.wait();
        order.push_back(0);
      },
      false));
  begun.wait();
  for (int i = 1; i <= 20; ++i) {
    states.push_back(
        queue->start([&order, i] { order.push_back(i); }, /*may_run_here=*/i % 2 == 0));
    EXPECT_FALSE(states.back()->done()) << "call " << i << " overtook one under way";
  }
  EXPECT_EQ(queue->pending(), 21);
  release.count_down();
  queue->wait(*states.back());
  for (int i = 0; i <= 20; ++i) EXPECT_EQ(order[i], i);
  for (const auto& state : states) EXPECT_TRUE(state->done());
  EXPECT_EQ(queue->pending(), 0);
}

TEST(CallQueue, AWaiterRunsWhatHasNotBegun) {
  // The first call is running on the thread; a second waiter must sleep, not run the second beside
  // it. Counted: never two at once, whoever runs them.
  auto queue = std::make_shared<CallQueue>("dp");
  std::atomic<int> inside{0}, most{0}, calls{0};
  const auto call = [&] {
    most = std::max(most.load(), ++inside);
    std::this_thread::yield();
    --inside;
    ++calls;
  };
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t) {
    callers.emplace_back([&] {
      for (int i = 0; i < 500; ++i) queue->wait(*queue->start(call, i % 3 == 0));
    });
  }
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(calls, 2000);
  EXPECT_EQ(most, 1);
}

TEST(CallQueue, TheThreadGoesOnAfterACallInACallersThread) {
  auto queue = std::make_shared<CallQueue>("dp");
  queue->wait(*queue->start([] {}, false));  // the thread is there
  for (int i = 0; i < 50; ++i) {             // it may see the caller's call end, or be told of it
    std::latch begun(1), release(1);
    std::thread caller([&] {
      queue->start(
          [&] {
            begun.count_down();
            release.wait();
          },
          true);
    });
    begun.wait();
    std::promise<void> ran;
    const auto state = queue->start([&] { ran.set_value(); }, false);
    for (int turns = 0; turns < 100; ++turns) std::this_thread::yield();
    release.count_down();
    // Nobody waits for the work: it is the thread that must run it.
    ASSERT_EQ(ran.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
    caller.join();
    queue->wait(*state);
  }
}

TEST(CallQueue, ErrorsComeOutOfWaitEachTime) {
  auto queue = std::make_shared<CallQueue>("dp");
  for (const bool here : {true, false}) {
    Work work(queue->start([] { throw UsageError("not so"); }, here));
    EXPECT_THROW(work.wait(), UsageError);
    EXPECT_THROW(work.wait(), UsageError);
    EXPECT_TRUE(work.done());
  }
  // Nothing was sent, so the group goes on.
  int ran = 0;
  Work(queue->start([&] { ++ran; }, true)).wait();
  EXPECT_EQ(ran, 1);
}

TEST(CallQueue, ACommErrorFinishesTheGroup) {
  auto queue = std::make_shared<CallQueue>("dp");
  Work first(queue->start([] { throw CommError("rank 2 is gone"); }, false));
  EXPECT_THROW(first.wait(), CommError);
  int ran = 0;
  for (const bool here : {true, false}) {
    Work later(queue->start([&] { ++ran; }, here));
    try {
      later.wait();
      FAIL() << "the group is finished";
    } catch (const CommError& error) {
      EXPECT_STREQ(error.what(), "rank 2 is gone");
    }
  }
  EXPECT_EQ(ran, 0);
}

TEST(CallQueue, ACallIsLetGoBeforeItIsComplete) {
  auto queue = std::make_shared<CallQueue>("dp");
  for (const bool here : {true, false}) {
    auto held = std::make_shared<int>(1);
    const std::weak_ptr<int> watch = held;
    const auto state = queue->start([held = std::move(held)] { ASSERT_EQ(*held, 1); }, here);
    queue->wait(*state);
    EXPECT_TRUE(watch.expired());
  }
}

TEST(CallQueue, AWorkOutlivesItsQueue) {
  auto queue = std::make_shared<CallQueue>("dp");
  Work work(queue->start([] { throw CommError("aborted"); }, false));
  queue->close();
  queue.reset();
  EXPECT_TRUE(work.done());
  EXPECT_THROW(work.wait(), CommError);
}

TEST(CallQueue, ExposedIsWhatBlockedCallers) {
  using namespace std::chrono_literals;
  auto queue = std::make_shared<CallQueue>("dp");
  const auto busy = [](auto duration) {
    const auto end = std::chrono::steady_clock::now() + duration;
    while (std::chrono::steady_clock::now() < end) {
    }
  };
  const auto here = queue->start([&] { busy(2ms); }, true);
  EXPECT_GE(queue->exposed_seconds(), 2e-3);
  EXPECT_GE(Work(here).exposed_seconds(), 2e-3);

  queue->reset_exposed();
  std::promise<void> ended;
  const auto hidden = queue->start(
      [&] {
        busy(2ms);
        ended.set_value();
      },
      false);
  ended.get_future().wait();  // the caller computes meanwhile
  while (!hidden->done()) {
  }
  Work(hidden).wait();
  EXPECT_EQ(queue->exposed_seconds(), 0);

  // A caller that comes before the end waits. (It may be late on a busy machine: it tries again.)
  for (int i = 0; i < 100 && queue->exposed_seconds() == 0; ++i) {
    std::promise<void> begun;
    std::atomic<bool> waiting{false};
    const auto blocking = queue->start(
        [&] {
          begun.set_value();
          while (!waiting) {
          }
          busy(2ms);
        },
        false);
    begun.get_future().wait();
    waiting = true;
    Work(blocking).wait();
    EXPECT_EQ(Work(blocking).exposed_seconds(), queue->exposed_seconds());
  }
  EXPECT_GT(queue->exposed_seconds(), 0);
}

}  // namespace
}  // namespace lockstep::detail
