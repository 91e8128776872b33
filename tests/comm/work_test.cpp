// Asynchronous collectives between ranks: many in flight, in order, and what happens on errors.
#include <latch>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/plan/sum_plan.h"
#include "tests/comm/on_ranks.h"

namespace lockstep {
namespace {

using test::message_of;
using test::numbers;
using test::on_ranks;
using test::same_bits;

TEST(Work, ManyInFlightKeepTheirOrder) {
  on_ranks({1, 2, 3, 4}, [](ProcessGroup& group) {
    // Each call builds on the one before: any swap shows. Sizes alternate between the two paths.
    at::Tensor large = at::full({3001}, 1, at::kLong);
    at::Tensor small = at::full({3}, 1, at::kLong);
    std::vector<Work> works;
    int64_t expected = 1;
    for (int i = 0; i < 12; ++i) {
      works.push_back(group.all_reduce(large));
      works.push_back(group.broadcast(large.narrow(0, 0, 5), i % group.size()));
      works.push_back(group.all_reduce(small));
      expected *= group.size();
    }
    for (auto work = works.rbegin(); work != works.rend(); ++work) work->wait();
    EXPECT_TRUE(at::equal(large, at::full({3001}, expected, at::kLong)));
    EXPECT_TRUE(at::equal(small, at::full({3}, expected, at::kLong)));
    for (const Work& work : works) EXPECT_TRUE(work.done());
  });
}

TEST(Work, HoldsItsTensorsUntilComplete) {
  std::latch dropped(1);
  on_ranks({2}, [&](ProcessGroup& group) {
    if (group.rank() == 1) {
      dropped.wait();  // so rank 0's call cannot complete before its tensor is dropped
      at::Tensor x = numbers(1, 5000);
      group.all_reduce(x).wait();
      EXPECT_TRUE(same_bits(x, numbers(0, 5000) + numbers(1, 5000)));
      return;
    }
    std::vector<float> memory(5000);
    std::atomic<bool> freed{false};
    at::Tensor x = at::from_blob(memory.data(), {5000}, [&](void*) { freed = true; });
    x.copy_(numbers(0, 5000));
    Work work = group.all_reduce(x);
    x.reset();
    EXPECT_FALSE(freed);
    dropped.count_down();
    work.wait();
    EXPECT_TRUE(freed) << "a complete collective holds nothing";
    EXPECT_EQ(memory[4999], (numbers(0, 5000) + numbers(1, 5000))[4999].item<float>());
  });
}

TEST(Work, AFailingRanksMessageReachesTheOthers) {
  for (const int64_t count : {3, 5000}) {
    SCOPED_TRACE(count);
    std::atomic<int> told{0};
    const auto body = [&](ProcessGroup& group) {
      at::Tensor x = numbers(group.rank(), count);
      group.all_reduce(x).wait();
      if (group.rank() == 1) throw StateError("the checkpoint has no tensor `wte`");
      Work work = group.all_reduce(x);
      for (int i = 0; i < 2; ++i) {
        const std::string message = message_of<CommError>([&] { work.wait(); });
        EXPECT_NE(message.find("no tensor `wte`"), std::string::npos) << message;
      }
      // The group is finished: what follows fails at once.
      EXPECT_THROW(group.barrier(), CommError);
      ++told;
      work.wait();
    };
    // The cause comes out, not an echo of it.
    EXPECT_THROW(on_ranks({3}, body), StateError);
    EXPECT_EQ(told, 2);
  }
}

TEST(Work, AnErrorWhileWorkIsUnderWayEndsTheJobAndIsTheOneThatComesOut) {
  std::atomic<int> told{0};
  std::latch made(3);  // an abort would end peers that are still making the group
  const auto body = [&](ProcessGroup& group) {
    const auto dp = group.subgroup({0, 1, 2}, "dp");
    made.arrive_and_wait();
    if (group.rank() == 1) {
      const Work work = dp->all_reduce(at::zeros({5000}));  // the others never join in
      throw TrainingError("step 7: the loss is not finite");
    }
    const std::string message = message_of<CommError>([&] { group.barrier(); });
    EXPECT_NE(message.find("ending on an error of its own"), std::string::npos) << message;
    ++told;
  };
  EXPECT_THROW(on_ranks({3}, body), TrainingError);
  EXPECT_EQ(told, 2);
}

TEST(Work, AnAbortEndsAllWaits) {
  std::atomic<int> told{0};
  const auto body = [&](ProcessGroup& group) {
    if (group.rank() == 2) {
      group.abort("rank 2 ran out of memory");
      return;
    }
    at::Tensor x = at::zeros({5000});
    const std::string message = message_of<CommError>([&] { group.all_reduce(x).wait(); });
    EXPECT_NE(message.find("rank 2 ran out of memory"), std::string::npos) << message;
    ++told;
  };
  on_ranks({3}, body);
  EXPECT_EQ(told, 2);
}

TEST(Work, DestructionDoesNotWaitForAPeer) {
  std::latch made(2);
  std::latch left(1);
  const auto body = [&](ProcessGroup& group) {
    auto pair = group.subgroup({0, 1}, "pair");
    made.arrive_and_wait();
    if (group.rank() == 0) {
      const auto start = std::chrono::steady_clock::now();
      const Work work = pair->all_reduce(at::zeros({5000}));  // rank 1 never joins in
      pair.reset();
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
      EXPECT_TRUE(work.done());
      left.count_down();
    } else {
      left.wait();
      const std::string message = message_of<CommError>([&] { group.barrier(); });
      EXPECT_NE(message.find("rank 0 of \"pair\" left with 1 collective"), std::string::npos)
          << message;
    }
  };
  on_ranks({2}, body);
}

TEST(Work, AMismatchIsAnErrorOnAllRanks) {
  std::atomic<int> told{0};
  on_ranks({3}, [&](ProcessGroup& group) {
    at::Tensor x = at::zeros({group.rank() == 2 ? 5001 : 5000});
    const std::string message = message_of<CommError>([&] { group.all_reduce(x).wait(); });
    EXPECT_NE(message.find("5000"), std::string::npos) << message;
    EXPECT_NE(message.find("5001"), std::string::npos) << message;
    ++told;
  });
  EXPECT_EQ(told, 3);
}

plan::SumPlan one_term_a_rank(int size) {
  std::vector<std::vector<plan::LeafRange>> terms;
  for (int r = 0; r < size; ++r) terms.push_back({{r, r + 1}});
  return plan::plan_sum(size, terms);
}

TEST(Totals, BytesAreThePlansFigures) {
  on_ranks({1, 2, 3, 4}, [](ProcessGroup& group) {
    const plan::SumPlan sum = one_term_a_rank(group.size());
    for (const int64_t count : {1, 5, 1021, 20'011}) {
      at::Tensor x = test::in_heap(group, numbers(group.rank(), count));
      group.reset_totals();
      group.all_reduce(x).wait();
      EXPECT_EQ(group.totals().bytes, plan::all_reduce_bytes(sum, group.rank(), count, 4)) << count;

      std::vector<int64_t> counts(group.size(), count);
      counts.back() = 0;
      const int64_t total = count * (group.size() - 1);
      at::Tensor whole = group.allocate({total});
      at::Tensor slice = group.allocate({counts[group.rank()]});
      group.reset_totals();
      group.reduce_scatter_uneven(whole, slice, counts).wait();
      EXPECT_EQ(group.totals().bytes,
                plan::direct_reduce_scatter_bytes(sum, group.rank(), counts, 4))
          << count;

      group.reset_totals();
      group.all_gather_uneven(slice, whole, counts).wait();
      EXPECT_EQ(group.totals().bytes, plan::direct_all_gather_bytes(group.rank(), counts, 4))
          << count;
    }
  });
}

TEST(Totals, ExposedIsNoMoreThanTheCallsAndTheirHandOver) {
  on_ranks({1, 2}, [](ProcessGroup& group) {
    const auto start = std::chrono::steady_clock::now();
    double of_works = 0;
    for (const int64_t count : {10, 100'000}) {
      at::Tensor x = numbers(group.rank(), count);
      Work work = group.all_reduce(x);
      work.wait();
      of_works += work.exposed_seconds();
    }
    const double elapsed =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const GroupTotals totals = group.totals();
    EXPECT_GT(totals.seconds, 0);
    EXPECT_NEAR(totals.exposed_seconds, of_works, 1e-9);
    EXPECT_LE(totals.exposed_seconds, elapsed);
    EXPECT_LE(totals.seconds, elapsed);
    group.reset_totals();
    EXPECT_EQ(group.totals().exposed_seconds, 0);
    EXPECT_EQ(group.totals().bytes, 0);
  });
}

}  // namespace
}  // namespace lockstep
