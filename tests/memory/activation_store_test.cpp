#include "lockstep/memory/activation_store.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/units.h"
#include "lockstep/memory/account.h"
#include "lockstep/memory/counting_allocator.h"
#include "lockstep/memory/detail/extents.h"
#include "tests/support/temp_folder.h"

namespace lockstep::memory {
namespace {

using files::BlockFile;
using files::BlockFileFault;
using files::BlockFileOptions;

// Nothing stays on its way to the file longer than until the next is stored.
constexpr ActivationStoreOptions kAtOnce = {.in_flight_bytes = 1};

class ActivationStoreTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { install_counting_allocator(); }

  ~ActivationStoreTest() override { account_.close(); }

  ActivationStore& made(const ActivationStoreOptions& options = {}, int64_t bytes = 64 * MiB,
                        const BlockFileOptions& file_options = {}) {
    file_ = std::make_shared<BlockFile>(folder_.path(), bytes, file_options);
    store_.emplace(file_, 0, bytes, options);
    return *store_;
  }

  int64_t activations() const { return account_.current()[static_cast<size_t>(Kind::activations)]; }

  lockstep::testing::TempFolder folder_;
  Account& account_ = Account::open();
  AccountScope scope_{account_};
  std::shared_ptr<BlockFile> file_;
  std::optional<ActivationStore> store_;
};

at::Tensor numbers(int64_t count, int64_t start = 0) {
  return torch::arange(start, start + count, at::kFloat);
}

TEST_F(ActivationStoreTest, WhatWasStoredComesBack) {
  ActivationStore& store = made(kAtOnce);
  std::vector<at::Tensor> tensors;
  for (int64_t i = 0; i < 12; ++i) tensors.push_back(numbers(1 + i * 12'345, i));
  tensors.push_back(numbers(600).view({20, 30}).t());
  tensors.push_back(numbers(100'000).narrow(0, 77, 60'000));
  tensors.push_back(numbers(100'000).view({100, 1000}).narrow(1, 3, 5));  // of little of it
  tensors.push_back(numbers(5000).to(at::kBFloat16));
  tensors.push_back(numbers(5000).to(at::kDouble));
  std::vector<ActivationStore::Handle> handles;
  for (const at::Tensor& tensor : tensors) handles.push_back(store.store(tensor));
  for (size_t i = tensors.size(); i-- > 0;) {
    const at::Tensor back = ActivationStore::load(handles[i]);
    EXPECT_TRUE(torch::equal(back, tensors[i])) << i;
    EXPECT_EQ(back.dtype(), tensors[i].dtype());
    EXPECT_NE(back.data_ptr(), tensors[i].data_ptr());
    handles.pop_back();
  }
  EXPECT_EQ(store.stored_bytes(), 0);
}

TEST_F(ActivationStoreTest, AnyOrderOfLoading) {
  ActivationStore& store = made(kAtOnce);
  std::vector<ActivationStore::Handle> handles;
  for (int64_t i = 0; i < 20; ++i) handles.push_back(store.store(numbers(2000, i)));
  for (const size_t i : {3, 19, 0, 7, 6, 5, 18, 1, 2, 4, 19, 3}) {
    EXPECT_TRUE(
        torch::equal(ActivationStore::load(handles[i]), numbers(2000, static_cast<int64_t>(i))));
  }
}

TEST_F(ActivationStoreTest, EachStorageMovesOnce) {
  ActivationStore& store = made(kAtOnce);
  const at::Tensor both = numbers(20'000);
  const at::Tensor other = numbers(20'000, 5);
  {
    const auto first = store.store(both.narrow(0, 0, 10'000));
    const auto between = store.store(other);
    const auto second = store.store(both.view({2, 10'000}).t());
    const int64_t pages = files::whole_pages(80'000);
    EXPECT_EQ(store.stored_bytes(), 2 * pages);
    EXPECT_EQ(file_->bytes_written(), 2 * pages);
    EXPECT_TRUE(torch::equal(ActivationStore::load(second), both.view({2, 10'000}).t()));
    EXPECT_TRUE(torch::equal(ActivationStore::load(between), other));
    EXPECT_TRUE(torch::equal(ActivationStore::load(first), both.narrow(0, 0, 10'000)));
    EXPECT_EQ(file_->bytes_read(), pages) << "the last was still on its way";
  }
  EXPECT_EQ(store.stored_bytes(), 0);
}

TEST_F(ActivationStoreTest, LaterChangesDoNotReachWhatIsStored) {
  ActivationStore& store = made();
  at::Tensor tensor = numbers(20'000);
  const auto before = store.store(tensor);
  tensor.add_(1);
  const auto after = store.store(tensor);
  tensor.zero_();
  EXPECT_TRUE(torch::equal(ActivationStore::load(before), numbers(20'000)));
  EXPECT_TRUE(torch::equal(ActivationStore::load(after), numbers(20'000, 1)));
}

TEST_F(ActivationStoreTest, AStorageInTheSamePlaceIsAnother) {
  ActivationStore& store = made();
  std::vector<ActivationStore::Handle> handles;
  for (int64_t i = 0; i < 10; ++i) handles.push_back(store.store(numbers(20'000, i)));
  for (int64_t i = 0; i < 10; ++i) {
    EXPECT_TRUE(torch::equal(ActivationStore::load(handles[i]), numbers(20'000, i)));
  }
}

TEST_F(ActivationStoreTest, HoldsWhatIsOnItsWay) {
  constexpr int64_t kBytes = 64 * KiB;
  constexpr int64_t kHeld = kBytes + 4096;  // and what brings it to a page
  ActivationStore& store = made({.in_flight_bytes = 4 * kBytes});
  std::vector<ActivationStore::Handle> handles;
  for (int64_t i = 0; i < 20; ++i) {
    handles.push_back(store.store(numbers(kBytes / 4, i)));
    EXPECT_LE(activations(), 4 * kHeld);
  }
  EXPECT_EQ(activations(), 4 * kHeld);
  int64_t most = 0;
  while (!handles.empty()) {
    (void)ActivationStore::load(handles.back());
    most = std::max(most, activations());
    handles.pop_back();
  }
  EXPECT_EQ(most, 5 * kHeld) << "those on their way, and one that is read ahead";
}

TEST_F(ActivationStoreTest, TheOneBeforeIsReadAhead) {
  ActivationStore& store = made(kAtOnce);
  std::vector<ActivationStore::Handle> handles;
  for (int64_t i = 0; i < 6; ++i) handles.push_back(store.store(numbers(1024, i)));
  (void)ActivationStore::load(handles[4]);  // 5 is still on its way to the file
  EXPECT_EQ(file_->bytes_read(), 2 * 4096) << "it, and the one before it";
  (void)ActivationStore::load(handles[3]);
  EXPECT_EQ(file_->bytes_read(), 3 * 4096);
}

TEST_F(ActivationStoreTest, SlowTransfersAreWaitedFor) {
  uint64_t draws = 0;
  BlockFileOptions slow;
  slow.at_start = [&](bool, int64_t, int64_t) {
    return BlockFileFault{.delay = std::chrono::microseconds(++draws * 7919 % 5000)};
  };
  ActivationStore& store = made({.in_flight_bytes = 20'000}, MiB, slow);
  for (int round = 0; round < 5; ++round) {
    std::vector<ActivationStore::Handle> handles;
    for (int64_t i = 0; i < 20; ++i) handles.push_back(store.store(numbers(1500, round + i)));
    for (int64_t i = 19; i >= 0; --i) {
      EXPECT_TRUE(torch::equal(ActivationStore::load(handles[i]), numbers(1500, round + i)));
      handles.pop_back();
    }
  }
}

TEST_F(ActivationStoreTest, RoomThatIsUsedUpIsAnErrorThatLosesNothing) {
  ActivationStore& store = made(kAtOnce, 5 * 4096);
  std::vector<ActivationStore::Handle> handles;
  for (int64_t i = 0; i < 5; ++i) handles.push_back(store.store(numbers(1024, i)));
  try {
    (void)store.store(numbers(1024));
    FAIL() << "stored";
  } catch (const EnvironmentError& error) {
    EXPECT_NE(std::string(error.what()).find("20.0 KiB of 20.0 KiB"), std::string::npos)
        << error.what();
  }
  handles.erase(handles.begin() + 2);
  handles.push_back(store.store(numbers(1024, 9)));
  EXPECT_TRUE(torch::equal(ActivationStore::load(handles.back()), numbers(1024, 9)));
  EXPECT_TRUE(torch::equal(ActivationStore::load(handles[2]), numbers(1024, 3)));
}

TEST_F(ActivationStoreTest, ADiskThatFailsIsAnError) {
  BlockFileOptions failing;
  failing.at_start = [](bool write, int64_t, int64_t) {
    return BlockFileFault{.error = write ? ENOSPC : 0};
  };
  ActivationStore& store = made(kAtOnce, MiB, failing);
  auto handle = store.store(numbers(1024));
  EXPECT_THROW((void)store.store(numbers(1024, 1)), StateError);
  EXPECT_THROW((void)ActivationStore::load(handle), StateError);
}

// Training through the store.

struct Square : torch::autograd::Function<Square> {  // a checkpoint: backward inside backward
  static at::Tensor forward(torch::autograd::AutogradContext* context, at::Tensor x) {
    context->save_for_backward({x});
    return x.tanh() * x;
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               torch::autograd::tensor_list gradients) {
    const at::AutoGradMode on(true);
    const at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_();
    torch::autograd::backward({x.tanh() * x}, {gradients[0]});
    return {x.grad()};
  }
};

constexpr int64_t kWidth = 256;

struct Blocks : torch::nn::Module {
  std::vector<torch::nn::Linear> layers;
  Blocks() {
    for (int i = 0; i < 8; ++i) {
      layers.push_back(register_module("l" + std::to_string(i), torch::nn::Linear(kWidth, kWidth)));
    }
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& layer : layers) x = Square::apply(torch::gelu(layer->forward(x)).softmax(-1)) + x;
    return x.pow(2).sum();
  }
};

TEST_F(ActivationStoreTest, AModelHasItsGradientsAndLessMemory) {
  ActivationStore& store = made({.in_flight_bytes = MiB});
  torch::manual_seed(1);
  Blocks model;
  const at::Tensor x = torch::rand({1024, kWidth});
  struct Run {
    std::vector<at::Tensor> gradients;
    int64_t most = 0;
  };
  const auto run = [&](bool offload, bool around_backward) {
    model.zero_grad(true);
    account_.reset_peaks();
    const int64_t before = account_.current_bytes();
    std::optional<ActivationOffloadScope> scope;
    if (offload) scope.emplace(store);
    at::Tensor loss = model.forward(x);
    if (!around_backward) scope.reset();
    loss.backward();
    Run result;
    result.most = account_.peak_bytes() - before;
    for (const at::Tensor& p : model.parameters()) result.gradients.push_back(p.grad().clone());
    return result;
  };
  const Run plain = run(false, false);
  for (const bool around_backward : {false, true}) {
    const Run offloaded = run(true, around_backward);
    for (size_t i = 0; i < plain.gradients.size(); ++i) {
      EXPECT_TRUE(torch::equal(offloaded.gradients[i], plain.gradients[i])) << "parameter " << i;
    }
    EXPECT_LT(2 * offloaded.most, plain.most) << "around backward: " << around_backward;
    EXPECT_EQ(store.stored_bytes(), 0) << "the graph has let go of everything";
  }
}

TEST_F(ActivationStoreTest, AnExceptionLeavesNothing) {
  ActivationStore& store = made();
  Blocks model;
  try {
    const ActivationOffloadScope scope(store);
    const at::Tensor loss = model.forward(torch::rand({1024, kWidth}));
    EXPECT_GT(store.stored_bytes(), MiB);
    throw std::runtime_error("in the middle of a step");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(store.stored_bytes(), 0);
  file_->settle();
  const auto handle = store.store(numbers(64 * MiB / 4));  // all of it, as one piece
  store_.reset();
  file_.reset();
  EXPECT_TRUE(torch::equal(ActivationStore::load(handle), numbers(64 * MiB / 4)))
      << "handles keep what they need";
}

TEST(Extents, PiecesComeTogetherAgain) {
  detail::Extents room(100, 50);
  const int64_t a = room.take(10);
  const int64_t b = room.take(10);
  const int64_t c = room.take(10);
  EXPECT_EQ(room.take(21), -1);
  EXPECT_EQ(a, 100);
  room.give_back(a, 10);
  room.give_back(c, 10);
  EXPECT_EQ(room.take(11), c) << "with what was free behind it";
  room.give_back(c, 11);
  room.give_back(b, 10);
  EXPECT_EQ(room.free(), (std::map<int64_t, int64_t>{{100, 50}}));
}

}  // namespace
}  // namespace lockstep::memory
