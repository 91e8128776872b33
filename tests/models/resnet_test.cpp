// The residual network: shapes, what it starts from, and its gradients.
#include "lockstep/models/resnet.h"

#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <map>

#include "lockstep/base/counter_random.h"
#include "lockstep/base/error.h"

namespace lockstep::models {
namespace {

at::Tensor drawn(at::IntArrayRef shape, const std::string& name) {
  at::Tensor x = at::empty(shape);
  const base::RandomKey key = base::RandomKey(3).with(name);
  for (int64_t i = 0; i < x.numel(); ++i) {
    x.data_ptr<float>()[i] = static_cast<float>(0.3 * key.normal(static_cast<uint64_t>(i)));
  }
  return x;
}

std::shared_ptr<ResNet> filled(const ResNetSettings& settings) {
  const at::NoGradGuard no_grad;
  auto net = std::make_shared<ResNet>(settings);
  for (const auto& item : net->named_parameters(/*recurse=*/true)) {
    item.value().copy_(drawn(item.value().sizes(), item.key()));
  }
  return net;
}

/// The same network in plain operators, channel by channel, from its parameters by name.
at::Tensor plain(const std::map<std::string, at::Tensor>& p, at::Tensor x, int64_t blocks,
                 int64_t width) {
  const auto norm = [&](const at::Tensor& of, const std::string& name) {
    return at::batch_norm(of, p.at(name + ".weight"), p.at(name + ".bias"), {}, {}, true, 0.1, 1e-5,
                          false);
  };
  x = at::relu(norm(at::conv2d(x, p.at("stem.weight"), {}, 1, 1), "stem_norm"));
  int64_t in = width, n = 0;
  for (int stage = 0; stage < 3; ++stage) {
    for (int64_t of_stage = 0; of_stage < blocks; ++of_stage, ++n) {
      const int64_t out = width << stage, stride = in == out ? 1 : 2;
      const std::string b = "blocks." + std::to_string(n) + ".";
      at::Tensor y =
          at::relu(norm(at::conv2d(x, p.at(b + "conv1.weight"), {}, stride, 1), b + "norm1"));
      y = norm(at::conv2d(y, p.at(b + "conv2.weight"), {}, 1, 1), b + "norm2");
      at::Tensor short_cut = x;
      if (stride == 2) {
        short_cut = x.slice(2, 0, c10::nullopt, 2).slice(3, 0, c10::nullopt, 2);
        const at::Tensor none =
            at::zeros({x.size(0), out - in, short_cut.size(2), short_cut.size(3)});
        short_cut = at::cat({short_cut, none}, 1);
      }
      x = at::relu(y + short_cut);
      in = out;
    }
  }
  return at::linear(x.mean({2, 3}), p.at("head.weight"), p.at("head.bias"));
}

TEST(ResNet, LogitsAndGradientsOfAPlainImplementation) {
  const ResNetSettings settings{.blocks = 2, .width = 8, .classes = 5, .channels = 3};
  const auto net = filled(settings);
  const at::Tensor x = drawn({4, 3, 9, 7}, "x"), factor = drawn({4, 5}, "factor");
  const at::Tensor logits = net->forward(x, {});
  (logits * factor).sum().backward();

  std::map<std::string, at::Tensor> copies;
  for (const auto& item : net->named_parameters(true)) {
    copies[item.key()] = item.value().detach().clone().requires_grad_();
  }
  const at::Tensor expected = plain(copies, x, settings.blocks, settings.width);
  (expected * factor).sum().backward();
  EXPECT_LE((logits - expected).abs().max().item<double>(), 1e-4);
  for (const auto& item : net->named_parameters(true)) {
    const at::Tensor other = copies.at(item.key()).grad();
    EXPECT_LE((item.value().grad() - other).abs().max().item<double>(),
              1e-4 * (1 + other.abs().max().item<double>()))
        << item.key();
  }
}

TEST(ResNet, RecomputeHasTheSameBits) {
  ResNetSettings settings{.blocks = 1, .width = 8};
  std::vector<std::vector<at::Tensor>> gradients;
  for (const bool recompute : {false, true}) {
    settings.recompute = recompute;
    const auto net = filled(settings);
    net->forward(drawn({4, 1, 8, 8}, "x"), {}).square().sum().backward();
    gradients.emplace_back();
    for (const at::Tensor& p : net->parameters()) gradients.back().push_back(p.grad());
  }
  for (size_t p = 0; p < gradients[0].size(); ++p) {
    EXPECT_TRUE(gradients[0][p].equal(gradients[1][p])) << p;
  }
}

TEST(ResNet, ParametersAreThoseOfThePlan) {
  plan::TrainConfig config = plan::preset("fashion");
  for (const int64_t layers : {1, 3}) {
    config.model.layers = layers;
    int64_t count = 0;
    for (const at::Tensor& p : make_resnet(config, 10)->parameters()) count += p.numel();
    EXPECT_EQ(count, plan::parameter_count(config));
  }
}

TEST(ResNet, StartValues) {
  const ResNet net({.width = 16});
  EXPECT_EQ(net.init_of("stem.weight").kind, plan::Init::Kind::normal);
  EXPECT_DOUBLE_EQ(net.init_of("blocks.0.conv1.weight").std, std::sqrt(2.0 / (16 * 9)));
  EXPECT_EQ(net.init_of("blocks.1.norm2.weight").kind, plan::Init::Kind::ones);
  EXPECT_EQ(net.init_of("blocks.1.norm2.bias").kind, plan::Init::Kind::zeros);
  EXPECT_EQ(net.init_of("head.bias").kind, plan::Init::Kind::zeros);
}

/// He et al. count 41 million multiply-adds for ResNet-20 on 32 by 32 points.
TEST(ResNet, OperationsAreThoseOfThePaper) {
  const ResNet twenty({.blocks = 3, .width = 16, .channels = 3});
  EXPECT_NEAR(twenty.flops_per_picture(32, 32) / 6, 40.6e6, 0.3e6);
}

TEST(ResNet, RefusesSettingsThatAreNone) {
  EXPECT_THROW(ResNet({.blocks = 0}), UsageError);
  EXPECT_THROW(ResNet({.width = 12, .norm = "group"}), UsageError);
  EXPECT_THROW(ResNet({.norm = "none"}), UsageError);
}

}  // namespace
}  // namespace lockstep::models
