#include "lockstep/memory/account.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/units.h"
#include "lockstep/memory/counting_allocator.h"

namespace lockstep::memory {
namespace {

at::Tensor bytes(int64_t count) { return torch::empty({count}, at::kByte); }

std::string refusal_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const OutOfMemory& error) {
    return error.what();
  }
  return "accepted";
}

class AccountTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { install_counting_allocator(); }
  ~AccountTest() override { account_.close(); }

  int64_t now(Kind kind) const { return account_.current()[static_cast<size_t>(kind)]; }
  int64_t most(Kind kind) const { return account_.peak()[static_cast<size_t>(kind)]; }

  Account& account_ = Account::open();
};

TEST_F(AccountTest, CountsByTheKindOfTheMoment) {
  const AccountScope scope(account_);
  const at::Tensor other = bytes(10);
  std::optional<at::Tensor> weight;
  {
    const KindScope kind(Kind::parameters);
    weight = bytes(1000);
    const KindScope inner(Kind::activations);
    const at::Tensor short_lived = bytes(300);
    EXPECT_EQ(now(Kind::activations), 300);
  }
  EXPECT_EQ(now(Kind::other), 10);
  EXPECT_EQ(now(Kind::parameters), 1000);
  EXPECT_EQ(now(Kind::activations), 0);
  EXPECT_EQ(most(Kind::activations), 300);
  EXPECT_EQ(account_.current_bytes(), 1010);
  EXPECT_EQ(account_.peak_bytes(), 1310);
  weight.reset();  // of its kind, though that is no longer the moment's
  EXPECT_EQ(now(Kind::parameters), 0);
  account_.reset_peaks();
  EXPECT_EQ(most(Kind::parameters), 0);
  EXPECT_EQ(account_.peak_bytes(), 10);
}

TEST_F(AccountTest, ThreadsHaveTheirOwnAndFreeForEachOther) {
  Account& second = Account::open();
  ASSERT_NE(&second, &account_);
  at::Tensor passed_on;
  std::thread other([&] {
    const AccountScope scope(second);
    passed_on = bytes(500);
  });
  other.join();
  EXPECT_EQ(second.current_bytes(), 500);
  EXPECT_EQ(account_.current_bytes(), 0);
  {
    const AccountScope scope(account_);
    passed_on = at::Tensor();
  }
  EXPECT_EQ(second.current_bytes(), 0);
  EXPECT_EQ(account_.current_bytes(), 0);
  second.close();
}

TEST_F(AccountTest, WhatLibTorchDidNotAllocate) {
  {
    const Counted moments(account_, Kind::optimizer, 4096);
    EXPECT_EQ(now(Kind::optimizer), 4096);
  }
  EXPECT_EQ(now(Kind::optimizer), 0);
  EXPECT_EQ(most(Kind::optimizer), 4096);
}

TEST_F(AccountTest, IsUsedAgainOnceItIsEmpty) {
  Account& first = Account::open();
  first.add(Kind::other, 5);
  first.close();
  Account& second = Account::open();
  EXPECT_NE(&second, &first) << "a block still points at it";
  first.add(Kind::other, -5);
  Account& third = Account::open();
  EXPECT_EQ(&third, &first);
  EXPECT_EQ(third.peak_bytes(), 0);
  second.close();
  third.close();
}

TEST_F(AccountTest, WhatWouldPassTheLimitIsRefusedWithWhatIsAlive) {
  const AccountScope scope(account_);
  account_.set_limit(10 * MiB, [] { return std::string("zero1 would fit"); });
  std::vector<at::Tensor> alive;
  {
    const KindScope kind(Kind::parameters);
    alive.push_back(bytes(2 * MiB));
  }
  const KindScope kind(Kind::activations);
  alive.push_back(bytes(5 * MiB));
  const Counted moments(account_, Kind::optimizer, MiB);
  EXPECT_EQ(refusal_of([] { bytes(3 * MiB); }),
            "no memory for 3.0 MiB of activations: memory.limit_mb allows 10.0 MiB and 8.0 MiB are "
            "alive: 5.0 MiB of activations, 2.0 MiB of parameters and 1.0 MiB of optimizer.\n"
            "  zero1 would fit");
  EXPECT_NE(refusal_of([&] {
              Counted(account_, Kind::communication, 3 * MiB);
            }).find("no memory for 3.0 MiB of communication"),
            std::string::npos);
  EXPECT_EQ(account_.current_bytes(), 8 * MiB) << "what was refused is not counted";
  EXPECT_EQ(account_.peak_bytes(), 8 * MiB);
  EXPECT_EQ(now(Kind::communication), 0);
  EXPECT_EQ(most(Kind::activations), 5 * MiB);
  alive.push_back(bytes(2 * MiB));  // to the last byte
  EXPECT_EQ(account_.current_bytes(), 10 * MiB);
  EXPECT_NE(refusal_of([] { bytes(1); }), "accepted");
  alive.pop_back();
  EXPECT_EQ(refusal_of([] { bytes(2 * MiB); }), "accepted");
  account_.set_limit(0);
  EXPECT_EQ(refusal_of([] { bytes(20 * MiB); }), "accepted");
}

TEST_F(AccountTest, ALimitEndsWithItsOwner) {
  Account& limited = Account::open();
  limited.set_limit(100);
  limited.close();
  Account& next = Account::open();
  ASSERT_EQ(&next, &limited);
  EXPECT_EQ(next.limit(), 0);
  next.close();
}

TEST_F(AccountTest, ThreadsOfOneAccountNeverPassItsLimitTogether) {
  account_.set_limit(100'000);
  std::atomic<int> refused{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const AccountScope scope(account_);
      std::vector<at::Tensor> alive;
      for (int round = 0; round < 2000; ++round) {
        try {
          alive.push_back(bytes(1 + round * 37 % 20'000));
        } catch (const OutOfMemory&) {
          ++refused;
          alive.clear();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(refused, 0);
  EXPECT_LE(account_.peak_bytes(), 100'000);
  EXPECT_EQ(account_.current_bytes(), 0);
}

TEST_F(AccountTest, AThreadsLimitIsItsOwn) {
  Account& small = Account::open();
  small.set_limit(1000);
  std::string of_small;
  std::string of_large;
  std::thread first([&] {
    const AccountScope scope(small);
    of_small = refusal_of([] { bytes(1001); });
  });
  std::thread second([&] {
    const AccountScope scope(account_);
    of_large = refusal_of([] { bytes(1001); });
  });
  first.join();
  second.join();
  EXPECT_NE(of_small, "accepted");
  EXPECT_EQ(of_large, "accepted");
  small.close();
}

#ifndef LOCKSTEP_SANITIZED

TEST_F(AccountTest, NearItsLimitNothingIsKeptForReuse) {
  const AccountScope scope(account_);
  account_.set_limit(40 * MiB);
  bytes(30 * MiB);  // freed, and kept
  ASSERT_GE(tensor_memory().cached_bytes, 30 * MiB);
  const at::Tensor small = bytes(3 * MiB);
  EXPECT_GE(tensor_memory().cached_bytes, 30 * MiB) << "both fit";
  const at::Tensor large = bytes(20 * MiB);
  EXPECT_LT(tensor_memory().cached_bytes, MiB);

  bytes(10 * MiB);
  ASSERT_GE(tensor_memory().cached_bytes, 10 * MiB);
  const Counted heap(account_, Kind::communication, 10 * MiB);
  EXPECT_LT(tensor_memory().cached_bytes, MiB);
}

#endif

}  // namespace
}  // namespace lockstep::memory
