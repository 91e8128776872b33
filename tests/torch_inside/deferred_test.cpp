#include "lockstep/torch_inside/deferred.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <thread>

namespace lockstep::torch_inside {
namespace {

struct Net : torch::nn::Module {
  Net() {
    linear = register_module("linear", torch::nn::Linear(300, 200));
    norm = register_module("norm", torch::nn::BatchNorm1d(200));
    lstm = register_module("lstm", torch::nn::LSTM(200, 50));
    table = register_module("table", torch::nn::Embedding(1000, 30));
    own = register_parameter("own", torch::empty({10, 20}));
    mask = register_buffer("mask", torch::ones({4, 4}).tril());
  }
  torch::nn::Linear linear{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::LSTM lstm{nullptr};
  torch::nn::Embedding table{nullptr};
  torch::Tensor own, mask;
};

TEST(Deferred, ParametersHaveShapesAndNoMemory) {
  const auto net = deferred([] { return std::make_shared<Net>(); });
  const auto plain = std::make_shared<Net>();
  const auto expected = plain->named_parameters();
  size_t count = 0;
  for (const auto& item : net->named_parameters()) {
    EXPECT_EQ(item.value().sizes(), expected[item.key()].sizes()) << item.key();
    EXPECT_EQ(item.value().storage().nbytes(), 0u) << item.key();
    EXPECT_TRUE(item.value().requires_grad());
    ++count;
  }
  EXPECT_EQ(count, expected.size());
  EXPECT_TRUE(torch::equal(net->mask, plain->mask)) << "buffers keep their values";
  EXPECT_TRUE(torch::equal(net->norm->running_var, torch::ones({200})));
}

TEST(Deferred, AParameterThatGetsMemoryIsLikeAnyOther) {
  const auto net = deferred([] { return std::make_shared<Net>(); });
  for (auto& item : net->named_parameters()) {
    item.value().set_data(torch::full(item.value().sizes(), 0.01f));
  }
  const auto y = net->linear(torch::ones({2, 300}));
  EXPECT_NEAR(y[0][0].item<float>(), 3.01f, 1e-4f);
  y.sum().backward();
  EXPECT_EQ(net->linear->weight.grad().sizes(), net->linear->weight.sizes());
}

TEST(Deferred, EndsWithItsScopeAndKeepsToItsThread) {
  {
    const DeferredParameters scope;
    std::thread([] { EXPECT_GT(torch::empty({10}).storage().nbytes(), 0u); }).join();
    EXPECT_EQ(torch::empty({10}).storage().nbytes(), 0u);
    EXPECT_GT(torch::empty({10}, torch::kLong).storage().nbytes(), 0u)
        << "whole numbers are no parameters";
    EXPECT_EQ(torch::zeros({3}).sum().item<float>(), 0) << "values are values";
  }
  EXPECT_GT(torch::empty({10}).storage().nbytes(), 0u);
}

}  // namespace
}  // namespace lockstep::torch_inside
