#include "lockstep/memory/account.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <optional>
#include <thread>

#include "lockstep/memory/counting_allocator.h"

namespace lockstep::memory {
namespace {

at::Tensor bytes(int64_t count) { return torch::empty({count}, at::kByte); }

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

}  // namespace
}  // namespace lockstep::memory
