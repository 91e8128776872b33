#include "lockstep/torch_inside/layer_profile.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <optional>

#include "lockstep/torch_inside/gemm_counter.h"

namespace lockstep::torch_inside {
namespace {

constexpr int64_t kB = 48, kIn = 64, kHidden = 96, kOut = 32;

/// A module as a user writes it, without any mark.
struct Net final : torch::nn::Module {
  Net() {
    first = register_module("first", torch::nn::Linear(kIn, kHidden));
    inner = register_module(
        "inner", torch::nn::Sequential(torch::nn::ReLU(), torch::nn::Linear(kHidden, kOut)));
  }
  at::Tensor forward(const at::Tensor& x) { return inner->forward(first->forward(x)); }
  torch::nn::Linear first{nullptr};
  torch::nn::Sequential inner{nullptr};
};

class LayerProfileTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { install_gemm_counter(); }

  /// One step: forward, backward, and an "update" that spends no time.
  void step(LayerProfile& profile) {
    profile.begin_step();
    at::Tensor loss;
    {
      const PhaseScope phase(Phase::forward);
      loss = net_.forward(x_);
      const LayerScope layer("loss");
      loss = loss.square().sum();
    }
    {
      const PhaseScope phase(Phase::backward);
      loss.backward();
    }
    {
      const PhaseScope phase(Phase::update);
      at::empty({4}).zero_();
    }
    profile.end_step();
  }

  static std::optional<ProfileRow> row(const LayerProfile& profile, const std::string& module,
                                       Phase phase) {
    for (const ProfileRow& row : profile.rows()) {
      if (row.module == module && row.phase == phase) return row;
    }
    return std::nullopt;
  }

  Net net_;
  at::Tensor x_ = torch::rand({kB, kIn}).requires_grad_();
};

/// Three witnesses: the closed form, the counter, the profile.
TEST_F(LayerProfileTest, OperationsAreThoseOfTheLayers) {
  LayerProfile profile(net_);
  const int64_t before = gemm_flops_of_this_thread();
  step(profile);
  step(profile);
  const int64_t counted = gemm_flops_of_this_thread() - before;
  EXPECT_EQ(profile.steps(), 2);
  const int64_t first = 2 * 2 * kB * kIn * kHidden, second = 2 * 2 * kB * kHidden * kOut;
  EXPECT_EQ(row(profile, "first", Phase::forward)->flops, first);
  EXPECT_EQ(row(profile, "first", Phase::backward)->flops, 2 * first);
  EXPECT_EQ(row(profile, "inner.1", Phase::forward)->flops, second);
  EXPECT_EQ(row(profile, "inner.1", Phase::backward)->flops, 2 * second);
  int64_t sum = 0;
  for (const ProfileRow& each : profile.rows()) sum += each.flops;
  EXPECT_EQ(sum, counted);
  EXPECT_EQ(sum, 3 * (first + second));
}

TEST_F(LayerProfileTest, TimesAddUpToTheStep) {
  LayerProfile profile(net_);
  for (int i = 0; i < 3; ++i) step(profile);
  double sum = 0;
  for (const ProfileRow& each : profile.rows()) {
    EXPECT_GE(each.seconds, 0) << each.module;
    sum += each.seconds;
  }
  EXPECT_NEAR(sum, profile.seconds(), 1e-9);
  EXPECT_GT(row(profile, "first", Phase::forward)->seconds, 0);
  EXPECT_TRUE(row(profile, "", Phase::update).has_value());
}

TEST_F(LayerProfileTest, BytesAreTheSizesOfInputsAndOutputs) {
  LayerProfile profile(net_);
  step(profile);
  const ProfileRow first = *row(profile, "first", Phase::forward);
  EXPECT_EQ(first.calls, 1);
  EXPECT_EQ(first.bytes_read, 4 * (kB * kIn + kHidden * kIn + kHidden));
  EXPECT_EQ(first.bytes_written, 4 * kB * kHidden);
  // No mark and no parameter: the model itself.
  const ProfileRow relu = *row(profile, "", Phase::forward);
  EXPECT_EQ(relu.bytes_read, 4 * kB * kHidden);
  EXPECT_EQ(relu.bytes_written, 4 * kB * kHidden);
  EXPECT_EQ(row(profile, "loss", Phase::forward)->calls, 2);
  EXPECT_GT(row(profile, "loss", Phase::backward)->calls, 0);
  EXPECT_GT(row(profile, "loss", Phase::backward)->bytes_written, 4 * kB * kOut);
}

TEST_F(LayerProfileTest, AViewMovesNothing) {
  LayerProfile profile(net_);
  profile.begin_step();
  {
    const PhaseScope phase(Phase::forward);
    const LayerScope views("views");
    const at::Tensor view = x_.detach().view({kIn, kB}).t().narrow(0, 1, 2);
    const LayerScope copies("copies");
    view.contiguous();
  }
  profile.end_step();
  EXPECT_EQ(row(profile, "views", Phase::forward)->bytes_read, 0);
  EXPECT_EQ(row(profile, "views", Phase::forward)->bytes_written, 0);
  EXPECT_EQ(row(profile, "copies", Phase::forward)->bytes_written, 4 * 2 * kIn);
}

using Weights = std::vector<at::Tensor>;

/// A layer as tensor-parallel ones are: its product is inside a function, under a block's mark.
struct Product : torch::autograd::Function<Product> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const Weights& weights) {
    torch::autograd::variable_list saved = {x};
    saved.insert(saved.end(), weights.begin(), weights.end());
    context->save_for_backward(saved);
    at::Tensor y = x;
    for (const at::Tensor& weight : weights) y = at::linear(y, weight);
    return y;
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               torch::autograd::tensor_list g) {
    const auto saved = context->get_saved_variables();
    const at::Tensor dy = saved.size() > 2 ? at::mm(g[0], saved[2]) : g[0];
    at::mm(dy.t(), saved[0]);  // what would be the weight's gradient
    return {at::mm(dy, saved[1]), at::Tensor()};
  }
};

TEST_F(LayerProfileTest, AFunctionOnALayersParameterIsThatLayers) {
  LayerProfile profile(net_);
  const at::Tensor& w_1 = net_.first->weight;
  const at::Tensor& w_2 = net_.inner->ptr<torch::nn::LinearImpl>(1)->weight;
  profile.begin_step();
  at::Tensor y;
  {
    const PhaseScope phase(Phase::forward);
    const LayerScope layer("block");
    y = Product::apply(Product::apply(x_ * 2, Weights{w_1}), Weights{w_2});
  }
  {
    const PhaseScope phase(Phase::backward);
    y.backward(at::ones_like(y));
  }
  profile.end_step();
  constexpr int64_t kFirst = 2 * kB * kIn * kHidden;
  constexpr int64_t kSecond = 2 * kB * kHidden * kOut;
  EXPECT_EQ(row(profile, "first", Phase::backward)->flops, 2 * kFirst);
  EXPECT_EQ(row(profile, "inner.1", Phase::backward)->flops, 2 * kSecond);
  EXPECT_EQ(row(profile, "block", Phase::backward)->flops, 0) << "the doubling's";
}

TEST_F(LayerProfileTest, AFunctionOnSeveralLayersIsItsMarks) {
  LayerProfile profile(net_);
  profile.begin_step();
  at::Tensor y;
  {
    const PhaseScope phase(Phase::forward);
    const LayerScope layer("block");
    y = Product::apply(
        x_ * 2, Weights{net_.first->weight, net_.inner->ptr<torch::nn::LinearImpl>(1)->weight});
  }
  {
    const PhaseScope phase(Phase::backward);
    y.backward(at::ones_like(y));
  }
  profile.end_step();
  EXPECT_GT(row(profile, "block", Phase::backward)->flops, 0);
  const auto of_first = row(profile, "first", Phase::backward);
  EXPECT_EQ(of_first ? of_first->flops : 0, 0);
}

/// An autograd function in C++ runs no operator of its own: the mark around it finds its backward.
TEST_F(LayerProfileTest, AFunctionOfTheUsersOwnIsFoundByTheMarkAroundIt) {
  struct Double : torch::autograd::Function<Double> {
    static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
      return x * 2;
    }
    static torch::autograd::tensor_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::tensor_list g) {
      return {g[0] * 2};
    }
  };
  LayerProfile profile(net_);
  profile.begin_step();
  at::Tensor y;
  {
    const PhaseScope phase(Phase::forward);
    const LayerScope layer("double");
    y = Double::apply(x_);
  }
  {
    const PhaseScope phase(Phase::backward);
    y.backward(at::ones_like(y));
  }
  profile.end_step();
  ASSERT_TRUE(row(profile, "double", Phase::backward).has_value());
  EXPECT_GE(row(profile, "double", Phase::backward)->bytes_written, 4 * kB * kIn);
}

TEST_F(LayerProfileTest, OutsideOfStepsMarksAreNothing) {
  LayerProfile profile(net_);
  {
    const PhaseScope phase(Phase::forward);
    const LayerScope layer("h.0");
    net_.forward(x_);
  }
  EXPECT_FALSE(at::hasThreadLocalCallbacks());
  EXPECT_TRUE(profile.rows().empty());
  step(profile);
  EXPECT_FALSE(at::hasThreadLocalCallbacks());
}

}  // namespace
}  // namespace lockstep::torch_inside
