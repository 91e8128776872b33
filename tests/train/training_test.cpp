// Program B: a loop of one's own, the same bits on any layout.

#include "lockstep/train/training.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/net/world.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

struct Net : torch::nn::Module {
  explicit Net(int64_t width) {
    in = register_module("in", torch::nn::Linear(6, width));
    layers = register_module("layers", torch::nn::ModuleList());
    for (int i = 0; i < 3; ++i) layers->push_back(torch::nn::Linear(width, width));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    out = register_module("out", torch::nn::Linear(width, 2));
  }
  at::Tensor forward(at::Tensor x) {
    x = torch::tanh(in(x));
    for (const auto& layer : *layers)
      x = x + torch::tanh(layer->as<torch::nn::Linear>()->forward(x));
    return out(norm(x));
  }
  torch::nn::Linear in{nullptr}, out{nullptr};
  torch::nn::ModuleList layers;
  torch::nn::LayerNorm norm{nullptr};
};

struct Points : torch::data::datasets::Dataset<Points> {
  torch::data::Example<> get(size_t index) override {
    const at::Tensor x =
        torch::sin(torch::arange(6, torch::kFloat) + 0.37f * static_cast<float>(index));
    return {x, torch::stack({x.sum(), x[0] - x[1]})};
  }
  c10::optional<size_t> size() const override { return 37; }
};

struct Outcome {
  std::string digest;
  double loss = 0;
  double grad_norm = 0;
  bool operator==(const Outcome&) const = default;
};

Outcome train(int ranks, const TrainingOptions& options, int steps = 4) {
  Outcome outcome;
  net::run_on_threads(ranks, [&](const std::shared_ptr<net::Group>& world) {
    Training t(std::make_shared<ProcessGroup>(world), options);
    auto net = t.build<Net>(20);
    auto opt = t.adamw(net, {.lr = 1e-2, .grad_clip = 0.5});
    Points points;
    Outcome mine;
    for (auto& step : t.steps(points, steps)) {
      for (auto& mb : step) {
        step.backward((net->forward(mb.x) - mb.y).square().sum(), mb.tokens);
      }
      opt.step(step);
      mine.loss = step.loss();
      mine.grad_norm = step.grad_norm();
    }
    mine.digest = t.digest();
    if (world->rank() == 0) outcome = mine;
  });
  return outcome;
}

TEST(Training, HasTheBitsOfOneRankInEveryLayout) {
  const TrainingOptions options{.global_batch = 12, .micro_batch = 2, .grains = 6};
  const Outcome alone = train(1, options);
  EXPECT_GT(alone.grad_norm, 0);
  for (const Shard shard : {Shard::none, Shard::zero1, Shard::zero2, Shard::zero3}) {
    TrainingOptions divided = options;
    divided.shard = shard;
    for (const int ranks : {1, 2, 3, 4, 5}) {
      const Outcome shared = train(ranks, divided);
      EXPECT_EQ(shared.digest, alone.digest) << static_cast<int>(shard) << " " << ranks;
      EXPECT_EQ(shared.loss, alone.loss);
      EXPECT_EQ(shared.grad_norm, alone.grad_norm);
    }
  }
}

/// A scale is a power of two, so it changes no bit.
TEST(Training, ALossScaleChangesNoBit) {
  TrainingOptions options{.global_batch = 12, .micro_batch = 2, .grains = 6};
  const Outcome plain = train(1, options);
  options.loss_scale = {.dynamic = true, .first = 1024, .growth_steps = 2};
  for (const Shard shard : {Shard::none, Shard::zero2, Shard::zero3}) {
    options.shard = shard;
    EXPECT_EQ(train(shard == Shard::none ? 1 : 3, options), plain);
  }
}

struct Weights : torch::nn::Module {
  Weights() { weight = register_parameter("weight", torch::empty({1})); }
  at::Tensor weight;
};

/// Each sample's gradient is its x.
struct Slopes : torch::data::datasets::Dataset<Slopes> {
  torch::data::Example<> get(size_t index) override {
    return {torch::full({1}, index == 0 ? 6.f : 8.f), torch::zeros({1})};
  }
  c10::optional<size_t> size() const override { return 2; }
};

TEST(Training, AMP_2_UnscalesAndClipsOnceAStep) {
  net::run_on_threads(1, [&](const std::shared_ptr<net::Group>& world) {
    Training t(std::make_shared<ProcessGroup>(world),
               {.global_batch = 2,
                .micro_batch = 1,
                .grains = 1,
                .shuffle = false,
                .loss_scale = {.first = 1024},
                .init_of = [](const std::string&) { return plan::Init{}; }});
    auto net = t.build<Weights>();
    auto opt = t.optimizer(net, optim::SgdOptions{.momentum = 0, .weight_decay = 0},
                           {.lr = 1, .grad_clip = 0});
    Slopes slopes;
    for (auto& step : t.steps(slopes, 1)) {
      for (auto& mb : step) step.backward((net->weight * mb.x).sum(), mb.tokens);
      opt.step(step);
      EXPECT_TRUE(step.taken());
      EXPECT_EQ(step.grad_norm(), 7);  // 6 / 2 + 8 / 2
      EXPECT_EQ(net->weight.item<float>(), -7);
      try {
        opt.step(step);
        ADD_FAILURE() << "a second step was taken";
      } catch (const UsageError& error) {
        EXPECT_NE(std::string(error.what()).find("unscaled"), std::string::npos) << error.what();
      }
      EXPECT_EQ(net->weight.item<float>(), -7);
    }
  });
}

TEST(Training, AnOverflowIsLeftOutAndHalvesTheScale) {
  for (const int ranks : {1, 2, 3}) {
    net::run_on_threads(ranks, [&](const std::shared_ptr<net::Group>& world) {
      Training t(std::make_shared<ProcessGroup>(world),
                 {.global_batch = 12,
                  .micro_batch = 2,
                  .grains = 6,
                  .shard = ranks == 3 ? Shard::zero3 : Shard::none,
                  .loss_scale = {.dynamic = true, .first = 4}});
      auto net = t.build<Net>(20);
      auto opt = t.adamw(net, {.lr = 1e-2});
      Points points;
      std::string before;
      for (auto& step : t.steps(points, 3)) {
        bool first = true;
        for (auto& mb : step) {
          at::Tensor loss = (net->forward(mb.x) - mb.y).square().sum();
          // A gradient of 16 bits overflows, its loss does not.
          if (step.number() == 1 && first && world->rank() == 0) {
            loss.register_hook([](const at::Tensor& gradient) { return gradient * INFINITY; });
          }
          first = false;
          step.backward(loss, mb.tokens);
        }
        opt.step(step);
        EXPECT_EQ(step.taken(), step.number() != 1);
        EXPECT_EQ(t.loss_scaler().scale(), step.number() == 0 ? 4 : 2);
        if (step.number() == 0) before = t.digest();
        if (step.number() > 0) {
          EXPECT_EQ(t.digest() == before, step.number() == 1);
        }
      }
      EXPECT_EQ(t.state().optimizer().steps_taken(), 2);
    });
  }
}

TEST(Training, OffloadsWithTheSameBits) {
  const testing::TempFolder folder;
  TrainingOptions options{.global_batch = 8, .micro_batch = 2, .shard = Shard::zero3};
  const Outcome in_memory = train(2, options);
  options.offload = {.parameters = true, .optimizer = true};
  options.offload_folder = folder.path();
  EXPECT_EQ(train(2, options), in_memory);
}

/// The loss falls: what is trained is the module's own parameters.
TEST(Training, Learns) {
  TrainingOptions options{.global_batch = 16, .micro_batch = 4, .shard = Shard::zero2};
  EXPECT_LT(train(2, options, 60).loss, 0.3 * train(2, options, 1).loss);
}

/// Every mistake of a loop is told by name, before anything hangs.
TEST(Training, TellsTheMistakesOfALoop) {
  const auto message =
      [](const std::function<void(Training&, Net&, TrainingOptimizer&, Points&)>& body) {
        std::string text;
        net::run_on_threads(1, [&](const std::shared_ptr<net::Group>& world) {
          Training t(std::make_shared<ProcessGroup>(world), {.global_batch = 4, .micro_batch = 2});
          auto net = t.build<Net>(8);
          auto opt = t.adamw(net, {});
          Points points;
          try {
            body(t, *net, opt, points);
          } catch (const UsageError& error) {
            text = error.what();
          }
        });
        return text;
      };
  EXPECT_NE(message([](Training& t, Net&, TrainingOptimizer&, Points& points) {
              for (auto& step : t.steps(points, 1)) {
                for (auto& mb : step) (void)mb;
              }
            }).find("before the last one had its backward"),
            std::string::npos);
  EXPECT_NE(message([](Training& t, Net& net, TrainingOptimizer&, Points& points) {
              for (auto& step : t.steps(points, 1)) {
                for (auto& mb : step) step.backward(net.forward(mb.x).sum(), 1);
              }
            }).find("says 1 terms, the micro-batch has 4"),
            std::string::npos);
  EXPECT_NE(message([](Training& t, Net&, TrainingOptimizer& opt, Points& points) {
              for (auto& step : t.steps(points, 1)) opt.step(step);
            }).find("before all micro-batches"),
            std::string::npos);
  EXPECT_NE(message([](Training& t, Net& net, TrainingOptimizer&, Points& points) {
              for (auto& step : t.steps(points, 2)) {
                for (auto& mb : step) step.backward(net.forward(mb.x).sum(), mb.tokens);
              }
            }).find("ended without opt.step"),
            std::string::npos);
}

/// torch::dropout follows the samples: ranks as processes only, since threads share the generator.
TEST(Training, DropoutOfTheUsersModuleIsDrawnByMicroBatch) {
  net::run_on_threads(1, [&](const std::shared_ptr<net::Group>& world) {
    Training t(std::make_shared<ProcessGroup>(world), {.global_batch = 4, .micro_batch = 2});
    auto net = t.build<Net>(8);
    auto opt = t.adamw(net, {});
    Points points;
    std::vector<at::Tensor> masks;
    for (auto& step : t.steps(points, 2)) {
      for (auto& mb : step) {
        masks.push_back(torch::dropout(torch::ones({64}), 0.5, true));
        torch::rand({masks.size() > 1 ? 7 : 3});  // what else is drawn does not matter
        step.backward(net->forward(mb.x).sum(), mb.tokens);
      }
      opt.step(step);
    }
    ASSERT_EQ(masks.size(), 4u);
    EXPECT_FALSE(torch::equal(masks[0], masks[1]));
    EXPECT_FALSE(torch::equal(masks[0], masks[2]));
  });
}

/// Layers whose forward takes 4 ms, over a network whose every message takes 2 ms more.
struct SlowNet : torch::nn::Module {
  SlowNet() {
    layers = register_module("layers", torch::nn::ModuleList());
    for (int i = 0; i < 24; ++i) layers->push_back(torch::nn::Linear(64, 64));
  }
  at::Tensor forward(at::Tensor x) {
    for (const auto& layer : *layers) {
      x = layer->as<torch::nn::Linear>()->forward(x);
      std::this_thread::sleep_for(std::chrono::milliseconds(4));
    }
    return x;
  }
  torch::nn::ModuleList layers;
};

/// Seconds that a forward waits for gathers, on rank 0 of 2.
double exposed_seconds(int prefetch) {
  net::EndpointOptions slow;
  slow.at_point = [](net::Point point) {
    if (point == net::Point::met) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  };
  double exposed = 0;
  net::run_on_threads(
      2,
      [&](const std::shared_ptr<net::Group>& world) {
        Training t(
            std::make_shared<ProcessGroup>(world),
            {.global_batch = 2, .micro_batch = 1, .shard = Shard::zero3, .prefetch = prefetch});
        auto net = t.build<SlowNet>();
        t.adamw(net, {});
        t.context().gather->reset_totals();
        t.without_gradients([&] { net->forward(torch::ones({1, 64})); });
        if (world->rank() == 0) exposed = t.context().gather->totals().exposed_seconds;
      },
      slow);
  return exposed;
}

/// One unit ahead, what is left to wait for is the first gather of 24: 4 %. Of three times the
/// shortest: on a busy machine a gather that nobody waits for may still come late.
TEST(Training, PrefetchHidesGathersBehindCompute) {
  const double hidden = std::min({exposed_seconds(1), exposed_seconds(1), exposed_seconds(1)});
  EXPECT_LT(hidden, 0.35 * exposed_seconds(0));
}

TEST(Training, RefusesWhatDoesNotFit) {
  net::run_on_threads(2, [](const std::shared_ptr<net::Group>& world) {
    const auto group = std::make_shared<ProcessGroup>(world);
    EXPECT_THROW(Training(group, {.global_batch = 4, .micro_batch = 2, .replicas = 2}), UsageError);
    EXPECT_THROW(Training(group, {.global_batch = 4, .micro_batch = 3}), UsageError);
    EXPECT_THROW(Training(group, {.global_batch = 4, .micro_batch = 4}), UsageError);
    EXPECT_THROW(Training(group, {.shard = Shard::zero2, .offload = {.parameters = true}}),
                 UsageError);
    group->barrier();
  });
}

}  // namespace
}  // namespace lockstep
