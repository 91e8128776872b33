#include "lockstep/torch_inside/grad_hooks.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::torch_inside {
namespace {

at::Tensor leaf(at::IntArrayRef shape) { return torch::rand(shape).requires_grad_(); }

TEST(GradHooks, FireAfterTheGradientIsThereInReverseOrderOfUse) {
  const at::Tensor first = leaf({4, 3}), second = leaf({3, 2}), x = torch::rand({5, 4});
  std::vector<std::string> fired;
  GradHooks hooks;
  hooks.watch(first, [&] {
    fired.push_back("first");
    EXPECT_TRUE(first.grad().defined());
  });
  hooks.watch(second, [&] {
    fired.push_back("second");
    EXPECT_TRUE(second.grad().defined());
    EXPECT_FALSE(first.grad().defined()) << "told too late to overlap anything";
  });
  x.mm(first).mm(second).sum().backward();
  EXPECT_EQ(fired, (std::vector<std::string>{"second", "first"}));
}

TEST(GradHooks, OncePerBackwardHoweverOftenUsed) {
  const at::Tensor weight = leaf({3, 3}), x = torch::rand({2, 3});
  int fired = 0;
  GradHooks hooks;
  hooks.watch(weight, [&] { ++fired; });
  x.mm(weight).tanh().mm(weight).mm(weight).sum().backward();
  EXPECT_EQ(fired, 1);
  (x.mm(weight) + weight.sum()).sum().backward();
  EXPECT_EQ(fired, 2);
}

TEST(GradHooks, NeverForATensorOutsideTheGraph) {
  const at::Tensor used = leaf({3}), unused = leaf({3});
  int fired = 0;
  GradHooks hooks;
  hooks.watch(unused, [&] { ++fired; });
  (used * 2).sum().backward();
  EXPECT_EQ(fired, 0);
}

TEST(GradHooks, GradientStaysInTheMemoryGivenToIt) {
  const at::Tensor weight = leaf({2, 3}), bucket = torch::zeros({8});
  weight.mutable_grad() = bucket.narrow(0, 1, 6).view_as(weight);
  at::Tensor seen;
  GradHooks hooks;
  hooks.watch(weight, [&] { seen = bucket.clone(); });
  (weight * 2).sum().backward();
  EXPECT_TRUE(torch::equal(seen, torch::tensor({0., 2., 2., 2., 2., 2., 2., 0.}).to(at::kFloat)));
  (weight * 3).sum().backward();
  EXPECT_TRUE(torch::equal(seen, torch::tensor({0., 5., 5., 5., 5., 5., 5., 0.}).to(at::kFloat)));
}

TEST(GradHooks, OutliveASwapOfStorage) {
  const at::Tensor weight = leaf({4});
  int fired = 0;
  GradHooks hooks;
  hooks.watch(weight, [&] { ++fired; });
  weight.set_data(torch::ones({4}));
  (weight * 2).sum().backward();
  EXPECT_EQ(fired, 1);
}

TEST(GradHooks, EachAliasOfOneStorageHasItsOwn) {
  const at::Tensor embedding = leaf({4, 3}), head = leaf({4, 3});
  head.set_data(embedding.detach());
  ASSERT_EQ(head.data_ptr(), embedding.data_ptr());
  std::vector<std::string> fired;
  GradHooks hooks;
  hooks.watch(embedding, [&] { fired.push_back("embedding"); });
  hooks.watch(head, [&] { fired.push_back("head"); });
  const at::Tensor ids = torch::tensor({1, 2}, at::kLong);
  at::embedding(embedding, ids).mm(head.t()).sum().backward();
  EXPECT_EQ(fired, (std::vector<std::string>{"head", "embedding"}));
  EXPECT_NE(head.grad().data_ptr(), embedding.grad().data_ptr());
  EXPECT_FALSE(torch::equal(head.grad(), embedding.grad()));
}

TEST(GradHooks, RunInTheThreadThatCalledBackward) {
  std::vector<std::thread> ranks;
  std::vector<int> in_own_thread(3, 0);
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] {
      const at::Tensor weight = torch::ones({5}).requires_grad_();
      GradHooks hooks;
      const auto own = std::this_thread::get_id();
      hooks.watch(weight, [&] { in_own_thread[rank] += std::this_thread::get_id() == own; });
      for (int step = 0; step < 10; ++step) (weight * 2).sum().backward();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(in_own_thread, (std::vector<int>{10, 10, 10}));
}

TEST(GradHooks, AnErrorInACallbackLeavesBackward) {
  const at::Tensor weight = leaf({4});
  GradHooks hooks;
  hooks.watch(weight, [] { throw std::runtime_error("the peer is gone"); });
  try {
    (weight * 2).sum().backward();
    FAIL() << "backward went on";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("the peer is gone"), std::string::npos);
  }
}

TEST(GradHooks, GoneWithTheObject) {
  const at::Tensor weight = leaf({4});
  int fired = 0;
  {
    GradHooks hooks;
    hooks.watch(weight, [&] { ++fired; });
  }
  (weight * 2).sum().backward();
  EXPECT_EQ(fired, 0);
}

}  // namespace
}  // namespace lockstep::torch_inside
