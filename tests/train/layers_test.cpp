// A model as a list of layers over a mesh: the cases of pipelines, and equal bits on any mesh.

#include <torch/torch.h>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/net/world.h"
#include "lockstep/train/training.h"

namespace lockstep {
namespace {

/// y = w x.
struct Scale : torch::nn::Module {
  Scale() { weight = register_parameter("weight", torch::empty({1})); }
  at::Tensor forward(const at::Tensor& x) { return x * weight; }
  at::Tensor weight;
};

/// The same, its weight that of another layer.
struct TiedScale : Scale, DividedLayer {
  explicit TiedScale(Tied tie) { tie_ = std::move(tie); }
};

/// Samples {x} with targets of one term.
struct Numbers {
  std::vector<float> values;
  torch::optional<size_t> size() const { return values.size(); }
  torch::data::Example<> get(size_t i) const {
    return {torch::full({1}, values[i]), torch::zeros({1})};
  }
};

at::Tensor plain_loss(const Layer&, const at::Tensor& out, const at::Tensor&) {
  return out.flatten();
}

void on_mesh(const std::string& mesh, int ranks, TrainingOptions options,
             const std::function<void(Training& training, ProcessGroup& world)>& body) {
  options.shuffle = false;
  net::run_on_threads(ranks, [&](const std::shared_ptr<net::Group>& group) {
    const auto world = std::make_shared<ProcessGroup>(group);
    Training training(Mesh::parse(mesh, world), options);
    body(training, *world);
    world->barrier();
  });
}

/// Sets all weights of this stage.
void set_weights(Training& training, float value) {
  state::ParamStore& params = training.state().params();
  for (size_t p = 0; p < params.table().params.size(); ++p) {
    *params.master(static_cast<int>(p)) = value;
  }
}

float gradient(Training& training, int param = 0) {
  return *training.state().grads().gradient(param);
}

TEST(LayersCases, PP_1_NobodyDividesAgain) {
  on_mesh("pp=3", 3, {.global_batch = 4, .micro_batch = 1}, [](Training& training, ProcessGroup&) {
    const auto net = training.build_layers([](Layers& layers) {
      for (int i = 0; i < 3; ++i) layers.add<Scale>("scale");
    });
    auto opt = training.adamw(net, {.lr = 0, .grad_clip = 0});
    set_weights(training, 2);
    Numbers data{{1, 1, 1, 1}};
    for (auto& step : training.steps(data, 1)) {
      step.run(net, plain_loss);
      opt.step(step);
      EXPECT_EQ(gradient(training), 4.0f);
      EXPECT_EQ(step.loss(), 8.0);
    }
  });
}

TEST(LayersCases, PP_2_WhatHasAccumulatedStays) {
  for (const char* schedule : {"gpipe", "1f1b", "zero-bubble"}) {
    on_mesh("pp=2", 2, {.global_batch = 4, .micro_batch = 1, .grains = 2, .schedule = schedule},
            [](Training& training, ProcessGroup&) {
              const auto net = training.build_layers([](Layers& layers) {
                for (int i = 0; i < 2; ++i) layers.add<Scale>("scale");
              });
              auto opt = training.adamw(net, {.lr = 0, .grad_clip = 0});
              set_weights(training, 1);
              Numbers data{{1, 3, 5, 7}};
              for (auto& step : training.steps(data, 2)) {
                step.run(net, plain_loss);
                opt.step(step);
                EXPECT_EQ(gradient(training), 4.0f);
              }
            });
  }
}

TEST(LayersCases, PP_4_ATiedWeightIsOneOnBothStages) {
  std::vector<float> ends(2);
  on_mesh("pp=2", 2, {.global_batch = 1, .micro_batch = 1},
          [&](Training& training, ProcessGroup& world) {
            const auto net = training.build_layers([](Layers& layers) {
              layers.add<Scale>("embed");
              layers.add<TiedScale>("head", tied("embed"));
            });
            auto opt = training.adamw(net, {.lr = 0.1, .weight_decay = 0, .grad_clip = 0});
            set_weights(training, 2);
            Numbers data{{3}};
            for (auto& step : training.steps(data, 20)) {
              step.run(net, plain_loss);
              opt.step(step);
              if (step.number() > 0) continue;
              EXPECT_EQ(gradient(training), 12.0f);
              EXPECT_EQ(step.grad_norm(), 12.0) << "counted once";
              EXPECT_EQ(step.loss(), 12.0);
            }
            ends[static_cast<size_t>(world.rank())] = *training.state().params().master(0);
          });
  EXPECT_EQ(ends[0], ends[1]);
  EXPECT_NE(ends[0], 2.0f);
}

/// A transformer block's feed-forward half, over the axes of any mesh.
struct Block : torch::nn::Module {
  explicit Block(int64_t width) {
    norm = register_module("norm", std::make_shared<SliceNorm>(width));
    in = register_module("in", std::make_shared<ColumnLinear>(width, 4 * width));
    out = register_module("out", std::make_shared<RowLinear>(4 * width, width));
  }
  at::Tensor forward(const at::Tensor& x) {
    std::vector<at::Tensor> hidden = in->forward(norm->forward(x));
    for (at::Tensor& grain : hidden) grain = torch::tanh(grain);
    return x + out->forward(hidden);
  }
  std::shared_ptr<SliceNorm> norm;
  std::shared_ptr<ColumnLinear> in;
  std::shared_ptr<RowLinear> out;
};

/// Sequences of 6 ids below 21, and the next ones.
struct Sequences {
  torch::optional<size_t> size() const { return 64; }
  torch::data::Example<> get(size_t i) const {
    const at::Tensor ids =
        (torch::arange(7, torch::kLong) * 5 + static_cast<int64_t>(i * i)).remainder(21);
    return {ids.narrow(0, 0, 6).clone(), ids.narrow(0, 1, 6).clone()};
  }
};

struct Result {
  std::string digest;
  double loss = 0;
  double norm = 0;
  bool operator==(const Result&) const = default;
};

Result train(const std::string& mesh, int ranks, TrainingOptions options) {
  options.global_batch = 16;
  options.micro_batch = 2;
  options.tensor_grains = 2;
  Result result;
  on_mesh(mesh, ranks, options, [&](Training& training, ProcessGroup& world) {
    const auto net = training.build_layers([](Layers& layers) {
      layers.add<VocabEmbedding>("embed", 21, 10);
      for (int i = 0; i < 4; ++i) layers.add<Block>("block", 10);
      layers.add<VocabHead>("head", 10, 21, tied("embed"));
    });
    auto opt = training.adamw(net, {.lr = 1e-2});
    Sequences data;
    Result mine;
    for (auto& step : training.steps(data, 3)) {
      step.run(net, token_loss);
      opt.step(step);
      mine.loss = step.loss();
      mine.norm = step.grad_norm();
    }
    mine.digest = training.digest();
    if (world.rank() == 0) result = mine;
  });
  return result;
}

TEST(Layers, EveryMeshHasTheBitsOfOneRank) {
  const Result alone = train("dp=1", 1, {});
  EXPECT_LT(alone.loss, 3.1);  // ln 21 = 3.04, and it has begun to learn
  struct Case {
    const char* mesh;
    int ranks;
    TrainingOptions options;
  };
  const std::vector<Case> cases = {
      {"dp=2", 2, {}},
      {"tp=2", 2, {}},
      {"tp=2", 2, {.sequence = true}},
      {"pp=3", 3, {}},
      {"pp=2", 2, {.schedule = "interleaved", .chunks = 2}},
      {"dp=2 pp=2 tp=2", 8, {}},
      {"pp=2 dp=2 tp=2", 8, {.shard = Shard::zero3, .schedule = "zero-bubble", .sequence = true}},
      {"dp=2 pp=2", 4, {.shard = Shard::zero1, .schedule = "zero-bubble-v"}}};
  for (const Case& c : cases) {
    const Result got = train(c.mesh, c.ranks, c.options);
    EXPECT_EQ(got.digest, alone.digest) << c.mesh;
    EXPECT_EQ(got.loss, alone.loss) << c.mesh;
    EXPECT_EQ(got.norm, alone.norm) << c.mesh;
  }
}

TEST(Layers, WhatDoesNotFitIsRefused) {
  const auto refused = [](const std::string& mesh, int ranks, const TrainingOptions& options,
                          const std::function<void(Training&)>& body) {
    EXPECT_THROW(
        on_mesh(mesh, ranks, options, [&](Training& training, ProcessGroup&) { body(training); }),
        UsageError)
        << mesh;
  };
  refused("dp=3", 2, {}, [](Training&) {});
  refused("dp=1 ep=2", 2, {}, [](Training&) {});
  refused("tp=2", 2, {.tensor_grains = 1}, [](Training&) {});
  refused("pp=1", 1, {}, [](Training& training) {
    training.build_layers([](Layers& layers) { layers.add<TiedScale>("a", tied("nothing")); });
  });
  refused("pp=2", 2, {}, [](Training& training) {
    training.build_layers([](Layers& layers) { layers.add<Scale>("a"); });
  });
}

}  // namespace
}  // namespace lockstep
