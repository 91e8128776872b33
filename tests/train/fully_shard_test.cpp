#include "lockstep/train/fully_shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/torch_inside/recompute.h"
#include "lockstep/train/distributed_data_parallel.h"
#include "lockstep/train/replicas.h"
#include "tests/train/ranks.h"

namespace lockstep {
namespace {

using test::message_of;
using test::on_worlds;
using test::same_bits;
using test::World;
using ::testing::HasSubstr;

// ---- modules with values that are functions of the element ----

void fill(torch::nn::Module& module) {
  const torch::NoGradGuard no_grad;
  double phase = 0;
  for (auto& p : module.parameters()) {
    p.copy_((torch::arange(p.numel()) * 0.37 + phase++).sin().view(p.sizes()) * 0.3);
  }
}

torch::Tensor data(std::vector<int64_t> shape, int step, int rank) {
  int64_t numel = 1;
  for (const int64_t size : shape) numel *= size;
  return (torch::arange(numel) * 0.21 + step + 3 * rank).cos().view(shape);
}

/// A module with parts that hold parameters: their paths are "part.name".
struct Parts : torch::nn::Module {
  torch::Tensor add(const std::string& part, const std::string& name, torch::Tensor value,
                    bool trained = true) {
    auto& module = parts[part];
    if (!module) module = register_module(part, std::make_shared<torch::nn::Module>());
    return module->register_parameter(name, std::move(value), trained);
  }
  std::map<std::string, std::shared_ptr<torch::nn::Module>> parts;
};

using Loss = std::function<torch::Tensor(int step, int rank)>;

struct Net {
  std::shared_ptr<torch::nn::Module> module;
  Loss loss;
};

Net layers() {
  torch::nn::Sequential net(torch::nn::Linear(17, 23), torch::nn::Tanh(), torch::nn::Linear(23, 19),
                            torch::nn::LayerNorm(torch::nn::LayerNormOptions({19})),
                            torch::nn::Linear(19, 5));
  return {net.ptr(), [net](int step, int rank) mutable {
            return net->forward(data({7, 17}, step, rank)).square().mean();
          }};
}

/// Result and argument are tuples; all in the root.
Net lstm() {
  torch::nn::LSTM net(torch::nn::LSTMOptions(9, 11).num_layers(2).bidirectional(true));
  return {net.ptr(), [net](int step, int rank) mutable {
            const auto state = std::make_tuple(data({4, 3, 11}, step, rank).contiguous(),
                                               data({4, 3, 11}, step + 1, rank).contiguous());
            const auto [out, last] = net->forward(data({5, 3, 9}, step, rank), state);
            return out.square().mean() + std::get<0>(last).mean() * std::get<1>(last).mean();
          }};
}

Net transformer() {
  struct Encoder : torch::nn::Module {
    Encoder() {
      for (int i = 0; i < 2; ++i) {
        blocks->push_back(torch::nn::TransformerEncoderLayer(
            torch::nn::TransformerEncoderLayerOptions(12, 2).dim_feedforward(20).dropout(0)));
      }
      register_module("blocks", blocks);
      head = register_module("head", torch::nn::Linear(12, 3));
    }
    torch::Tensor forward(torch::Tensor x) {
      for (const auto& block : *blocks) {
        x = block->as<torch::nn::TransformerEncoderLayer>()->forward(x);
      }
      return head(x);
    }
    torch::nn::ModuleList blocks;
    torch::nn::Linear head{nullptr};
  };
  auto net = std::make_shared<Encoder>();
  return {net, [net](int step, int rank) {
            return net->forward(data({6, 2, 12}, step, rank)).square().mean();
          }};
}

/// Frozen, empty, smaller than the ranks, and large enough to be cut inside.
Net mixed() {
  struct Mixed : Parts {
    torch::Tensor large = add("0", "large", torch::zeros({40, 30}));
    torch::Tensor empty = add("0", "empty", torch::zeros({0, 4}));
    torch::Tensor frozen = add("1", "frozen", torch::zeros({30}), /*trained=*/false);
    torch::Tensor small = add("1", "small", torch::zeros({1}));
    torch::Tensor alone = add("2", "alone", torch::zeros({40}), /*trained=*/false);
    torch::Tensor scale = register_parameter("scale", torch::zeros({2}));
  };
  auto net = std::make_shared<Mixed>();
  return {net, [net](int step, int rank) {
            const torch::Tensor x = data({3, 40}, step, rank) + net->alone;
            const torch::Tensor y = torch::mm(x, net->large) * net->frozen + net->small;
            return (y.square().mean() * net->scale).sum() + net->empty.sum();
          }};
}

/// One tensor under two paths, in two layers of a list and beside them.
Net shared() {
  struct Shared : torch::nn::Module {
    Shared() {
      first = torch::nn::Linear(16, 16);
      last = torch::nn::Linear(16, 16);
      last->weight = last->register_parameter("weight_", first->weight);
      list->push_back(first);
      list->push_back(torch::nn::Linear(16, 16));
      list->push_back(last);
      register_module("list", list);
    }
    torch::Tensor forward(const torch::Tensor& x) {
      torch::Tensor y = first(x).tanh();
      y = list[1]->as<torch::nn::Linear>()->forward(y).tanh();
      return torch::linear(y, last->weight, last->bias);
    }
    torch::nn::ModuleList list;
    torch::nn::Linear first{nullptr}, last{nullptr};
  };
  auto net = std::make_shared<Shared>();
  // What the second layer had of its own takes part in nothing.
  for (auto& p : net->named_parameters()) {
    if (p.key() == "list.2.weight") p.value().requires_grad_(false);
  }
  return {net, [net](int step, int rank) {
            return net->forward(data({4, 16}, step, rank)).square().mean();
          }};
}

const std::vector<std::pair<std::string, Net (*)()>> kNets = {{"layers", layers},
                                                              {"lstm", lstm},
                                                              {"transformer", transformer},
                                                              {"mixed", mixed},
                                                              {"shared", shared}};

using Values = std::map<std::string, torch::Tensor>;

constexpr int kSteps = 4;

/// AdamW goes element by element: parameters and their shards end alike.
Values train_replicas(const World& world, const Net& net) {
  fill(*net.module);
  DistributedDataParallel ddp(net.module, world, {.unused = UnusedParameters::zero});
  std::vector<torch::Tensor> trained;
  for (const auto& [name, p] : parameters_of(*net.module)) {  // each once
    if (p.requires_grad()) trained.push_back(p);
  }
  torch::optim::AdamW adamw(trained, 1e-2);
  for (int step = 0; step < kSteps; ++step) {
    ddp.zero_grad();
    ddp.backward(net.loss(step, world->rank()));
    adamw.step();
  }
  Values values;
  for (const auto& p : net.module->named_parameters()) values[p.key()] = p.value().detach().clone();
  return values;
}

Values values_of(FullyShard& h) {
  Values values;
  for (const auto& p : h.module().named_parameters()) values[p.key()] = h.whole(p.key());
  return values;
}

Values train_shards(const World& world, const Net& net, FullyShardOptions options) {
  if (world->rank() == 0) fill(*net.module);  // the others take these
  options.unused = UnusedParameters::zero;
  FullyShard h = fully_shard(net.module, world, options);
  torch::optim::AdamW adamw(h.parameters(), 1e-2);
  for (int step = 0; step < kSteps; ++step) {
    h.zero_grad();
    h.backward(net.loss(step, world->rank()));
    adamw.step();
  }
  return values_of(h);
}

void expect_same(const Values& shards, const Values& replicas) {
  ASSERT_EQ(shards.size(), replicas.size());
  for (const auto& [name, value] : replicas) EXPECT_TRUE(same_bits(shards.at(name), value)) << name;
}

TEST(FullyShard, HasTheBitsOfReplicas) {
  for (const auto& [name, make] : kNets) {
    SCOPED_TRACE(name);
    on_worlds({1, 2, 3, 4}, [make = make](const World& world) {
      const Values replicas = train_replicas(world, make());
      expect_same(train_shards(world, make(), {}), replicas);
    });
  }
}

TEST(FullyShard, DepthPolicyAndUnitsChangeNoBit) {
  const auto by_part = [](const std::string& path) { return path.substr(0, path.rfind('.')); };
  const auto one = [](const std::string&) { return std::string("all"); };
  const auto apart = [](const std::string& path) { return path; };
  for (const auto& [name, make] : kNets) {
    SCOPED_TRACE(name);
    on_worlds({3}, [&, make = make](const World& world) {
      const Values replicas = train_replicas(world, make());
      expect_same(train_shards(world, make(), {.prefetch = 0}), replicas);
      expect_same(train_shards(world, make(), {.prefetch = 3, .unit_of = apart}), replicas);
      expect_same(train_shards(world, make(), {.reshard_after_forward = false}), replicas);
      expect_same(train_shards(world, make(), {.unit_of = by_part}), replicas);
      expect_same(train_shards(world, make(), {.unit_of = one}), replicas);
    });
  }
}

/// Whole numbers and powers of two: every sum is exact in any order, so one process that computes
/// all ranks' losses must end with the same bits.
TEST(FullyShard, EqualsOneProcess) {
  on_worlds({1, 2, 3, 4}, [](const World& world) {
    const auto make = [] {
      torch::nn::Sequential net(torch::nn::Linear(12, 30), torch::nn::ReLU(),
                                torch::nn::Linear(30, 10));
      const torch::NoGradGuard no_grad;
      for (auto& p : net->parameters()) {
        p.copy_((torch::arange(p.numel()) % 3 - 1).view(p.sizes()));
      }
      return net;
    };
    const auto loss_of = [](torch::nn::Sequential& net, int step, int rank) {
      const auto small = [&](int64_t numel) {
        return ((torch::arange(numel) * (step + 2) + rank) % 3 - 1).to(torch::kFloat);
      };
      return (net->forward(small(36).view({3, 12})) * small(30).view({3, 10})).sum();
    };
    torch::nn::Sequential alone = make();
    torch::optim::SGD sgd(alone->parameters(), 0.125);
    torch::nn::Sequential net = make();
    FullyShard h = fully_shard(net, world, {.reduction = Reduction::sum});
    torch::optim::SGD shard_sgd(h.parameters(), 0.125);
    for (int step = 0; step < 3; ++step) {
      alone->zero_grad();
      for (int rank = 0; rank < world->size(); ++rank) loss_of(alone, step, rank).backward();
      sgd.step();
      h.zero_grad();
      h.backward(loss_of(net, step, world->rank()));
      shard_sgd.step();
    }
    for (const auto& p : alone->named_parameters()) {
      EXPECT_TRUE(same_bits(h.whole(p.key()), p.value().detach())) << p.key();
    }
  });
}

// ---- cases ----

struct Embedded : Parts {
  torch::Tensor weight = add("0", "embedding", torch::full({1}, 2.0f));
  torch::Tensor head = add("1", "head", weight);
};

TEST(FullyShard, ZERO_4_ATiedWeightInTwoUnits) {
  on_worlds({1, 2, 3}, [](const World& world) {
    auto net = std::make_shared<Embedded>();
    FullyShard h = fully_shard(net, world);
    torch::optim::SGD sgd(h.parameters(), 0.1);
    h.backward(net->weight * (net->weight * 3));
    torch::Tensor grad = torch::zeros({1});
    for (const auto& p : h.parameters()) grad += p.grad().sum();
    world->all_reduce(grad).wait();
    EXPECT_EQ(grad.item<float>(), 12.0f);
    sgd.step();
    EXPECT_FLOAT_EQ(h.whole("0.embedding").item<float>(), 0.8f);
    EXPECT_FLOAT_EQ(h.whole("1.head").item<float>(), 0.8f);
    EXPECT_EQ(h.shards().at(0).unit, "") << "the root's";
    EXPECT_EQ(h.shards().size(), 1u);
  });
}

TEST(FullyShard, ZERO_5_AParameterWithoutElements) {
  struct Empty : Parts {
    torch::Tensor empty = add("0", "empty", torch::zeros({0, 4}));
    torch::Tensor two = add("1", "two", torch::ones({2}));
  };
  on_worlds({1, 2, 3}, [](const World& world) {
    auto net = std::make_shared<Empty>();
    FullyShard h = fully_shard(net, world);
    torch::optim::Adam adam(h.parameters(), 0.1);
    torch::Tensor alone = torch::ones({2}, torch::requires_grad());
    torch::optim::Adam reference({alone}, 0.1);
    for (int step = 0; step < 3; ++step) {
      h.zero_grad();
      h.backward(net->two.square().sum() + net->empty.sum());
      adam.step();
      alone.mutable_grad() = torch::Tensor();
      alone.square().sum().backward();
      reference.step();
    }
    EXPECT_TRUE(same_bits(h.whole("1.two"), alone.detach()));
    EXPECT_EQ(h.whole("0.empty").sizes(), (std::vector<int64_t>{0, 4}));
  });
}

struct Eight : torch::nn::Module {
  explicit Eight(int64_t width = 16, int count = 8) {
    for (int i = 0; i < count; ++i) list->push_back(torch::nn::Linear(width, width));
    register_module("list", list);
  }
  torch::Tensor forward(torch::Tensor x, int skipped = -1) {
    for (size_t i = 0; i < list->size(); ++i) {
      if (static_cast<int>(i) != skipped) x = layer(i)->forward(x).tanh();
      if (pause.count() > 0) std::this_thread::sleep_for(pause);
    }
    return x;
  }
  torch::nn::LinearImpl* layer(size_t i) { return list[i]->as<torch::nn::Linear>(); }
  torch::nn::ModuleList list;
  std::chrono::milliseconds pause{0};
};

TEST(FullyShard, ZERO_8_NeverMoreThanDepthAndOne) {
  on_worlds({1, 2, 3}, [](const World& world) {
    for (const int depth : {0, 1, 3}) {
      auto net = std::make_shared<Eight>();
      net->pause = std::chrono::milliseconds(depth == 1 ? 10 : 0);
      FullyShard h = fully_shard(net, world, {.prefetch = depth});
      for (int step = 0; step < 3; ++step) {
        h.backward(net->forward(data({2, 16}, step, world->rank())).sum());
      }
      EXPECT_EQ(h.counts().most_gathered, depth + 1);
      // Forward 8. Backward 6: the last one is still there, and nobody asks for the gradient of the
      // input, which is what the first one's weight would be for.
      EXPECT_EQ(h.counts().gathers, 3 * 14);
      EXPECT_EQ(h.counts().reductions, 3 * 8);
      EXPECT_LE(h.counts().most_gradient_bytes, 3 * 272 * 4) << "not the whole model's";
    }
  });
}

TEST(FullyShard, ZERO_10_DecayOfMatricesOnly) {
  struct Three : Parts {
    torch::Tensor gain = add("0", "gain", torch::ones({3}));
    torch::Tensor weight = add("0", "weight", torch::ones({2, 2}));
    torch::Tensor bias = register_parameter("bias", torch::ones({2}));
  };
  on_worlds({1, 2, 3, 4}, [](const World& world) {
    auto net = std::make_shared<Three>();
    FullyShard h = fully_shard(net, world);
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(h.parameters(/*matrices=*/true),
                        std::make_unique<torch::optim::AdamWOptions>(
                            torch::optim::AdamWOptions(0.1).weight_decay(0.1)));
    groups.emplace_back(h.parameters(/*matrices=*/false),
                        std::make_unique<torch::optim::AdamWOptions>(
                            torch::optim::AdamWOptions(0.1).weight_decay(0)));
    torch::optim::AdamW adamw(groups, torch::optim::AdamWOptions(0.1));
    h.backward(((net->weight.sum() + net->bias.sum() + net->gain.sum()) * 0));
    adamw.step();
    EXPECT_TRUE(torch::equal(h.whole("0.weight"), torch::full({2, 2}, 0.99f)));
    EXPECT_TRUE(torch::equal(h.whole("0.gain"), torch::ones({3})));
    EXPECT_TRUE(torch::equal(h.whole("bias"), torch::ones({2})));
  });
}

TEST(FullyShard, ZERO_11_NormsOfRanksThatOwnNothing) {
  struct Two : torch::nn::Module {
    torch::Tensor two = register_parameter("two", torch::zeros({2}));
  };
  on_worlds({1, 2, 3}, [](const World& world) {
    const torch::Tensor wanted = torch::tensor({3.0f, -4.0f});
    auto net = std::make_shared<Two>();
    FullyShard h = fully_shard(net, world);
    const auto gradient_is = [&](const torch::Tensor& g) {
      h.zero_grad();
      h.backward((net->two * g).sum());
    };
    gradient_is(wanted);
    EXPECT_EQ(h.clip_grad_norm(100), 5.0);
    EXPECT_EQ(h.clip_grad_norm(100, Norm::largest), 4.0);
    EXPECT_EQ(h.clip_grad_norm(1), 5.0);
    EXPECT_NEAR(h.clip_grad_norm(1), 1.0, 1e-6);
    gradient_is(wanted * 0);
    EXPECT_EQ(h.clip_grad_norm(1), 0.0);
    gradient_is(wanted * NAN);
    EXPECT_TRUE(std::isnan(h.clip_grad_norm(1)));
    EXPECT_TRUE(std::isnan(h.clip_grad_norm(1, Norm::largest)));
    h.zero_grad();
    EXPECT_EQ(h.clip_grad_norm(1), 0.0) << "no gradients at all";
    EXPECT_THAT(message_of<UsageError>([&] { h.clip_grad_norm(0); }), HasSubstr("positive"));

    auto nothing = std::make_shared<torch::nn::SequentialImpl>();
    FullyShard none = fully_shard(nothing, world);
    EXPECT_EQ(none.clip_grad_norm(1), 0.0);
    EXPECT_EQ(none.clip_grad_norm(1, Norm::largest), 0.0);
  });
}

/// The norm of shards has the bits of the norm of the whole, in 17 digits.
TEST(FullyShard, TheNormIsThatOfOneRank) {
  std::map<int, double> norms;
  std::mutex mutex;
  on_worlds({1, 2, 3, 4}, [&](const World& world) {
    const Net net = layers();
    fill(*net.module);
    FullyShard h = fully_shard(net.module, world);
    h.backward(net.loss(0, 0));  // the same on every rank
    const double value = h.clip_grad_norm(1e-3);
    const std::lock_guard lock(mutex);
    if (world->size() != 3) norms.emplace(world->size(), value);
  });
  // The mean of equal gradients is exact for a power of two.
  EXPECT_EQ(norms.at(1), norms.at(2));
  EXPECT_EQ(norms.at(1), norms.at(4));
}

// ---- the loop ----

TEST(FullyShard, GradientsAccumulateWithAndWithoutSync) {
  on_worlds({1, 2, 3, 4}, [](const World& world) {
    const auto gradients = [&](bool sync, bool clear_first) {
      const Net net = layers();
      fill(*net.module);
      FullyShard h = fully_shard(net.module, world, {.reduction = Reduction::sum});
      for (int step = 0; step < 2; ++step) {
        if (clear_first) h.zero_grad();
        if (!clear_first) {
          for (auto& p : h.parameters()) {
            if (p.grad().defined()) p.mutable_grad().zero_();  // as optimizers do
          }
        }
        if (sync) {
          h.backward(net.loss(0, 0));
        } else {
          const auto local = h.no_sync();
          h.backward(net.loss(0, 0));
        }
        h.backward(net.loss(0, 0));
      }
      EXPECT_EQ(h.counts().reductions, (sync ? 4 : 2) * 4);
      std::vector<torch::Tensor> all;
      for (const auto& p : h.parameters()) all.push_back(p.grad().clone());
      return all;
    };
    const auto once = gradients(true, true);
    // g + g of D equal ranks: 2 D g, exact but for the odd multiples of 3 ranks.
    for (const auto& others :
         {gradients(false, true), gradients(true, false), gradients(false, false)}) {
      for (size_t p = 0; p < once.size(); ++p) {
        EXPECT_TRUE(torch::allclose(once[p], others[p], 3e-7, 1e-12)) << p;
        if (world->size() != 3) {
          EXPECT_TRUE(torch::equal(once[p], others[p])) << p;
        }
      }
    }
  });
}

TEST(FullyShard, EvaluationSeesTheNewestValues) {
  for (const bool reshard : {true, false}) {
    on_worlds({1, 2, 3}, [&](const World& world) {
      const Net mine = transformer();
      const Net theirs = transformer();
      fill(*mine.module);
      fill(*theirs.module);
      FullyShard h = fully_shard(mine.module, world, {.reshard_after_forward = reshard});
      DistributedDataParallel ddp(theirs.module, world);
      torch::optim::SGD sgd(h.parameters(), 0.1);
      torch::optim::SGD reference(theirs.module->parameters(), 0.1);
      const auto evaluate = [&](int step) {
        const torch::NoGradGuard no_grad;
        for (int batch = 0; batch < 2; ++batch) {
          EXPECT_TRUE(same_bits(mine.loss(step + batch, 9), theirs.loss(step + batch, 9)));
        }
      };
      evaluate(0);
      for (int step = 0; step < 3; ++step) {
        h.zero_grad();
        ddp.zero_grad();
        h.backward(mine.loss(step, world->rank()));
        ddp.backward(theirs.loss(step, world->rank()));
        evaluate(step);  // leaves units gathered
        sgd.step();
        reference.step();
        evaluate(step);
        EXPECT_TRUE(same_bits(mine.loss(1, 2).detach(), theirs.loss(1, 2).detach()))
            << "kept graph";
      }
    });
  }
}

TEST(FullyShard, SeveralForwardsBeforeOneBackward) {
  on_worlds({1, 2, 3}, [](const World& world) {
    const Net mine = layers();
    const Net theirs = layers();
    fill(*mine.module);
    fill(*theirs.module);
    FullyShard h = fully_shard(mine.module, world);
    DistributedDataParallel ddp(theirs.module, world);
    torch::optim::SGD sgd(h.parameters(), 0.1);
    torch::optim::SGD reference(theirs.module->parameters(), 0.1);
    for (int step = 0; step < 3; ++step) {
      h.zero_grad();
      ddp.zero_grad();
      const int rank = world->rank();
      h.backward(mine.loss(step, rank) + mine.loss(step + 5, rank) * 2);
      ddp.backward(theirs.loss(step, rank) + theirs.loss(step + 5, rank) * 2);
      sgd.step();
      reference.step();
    }
    for (const auto& p : theirs.module->named_parameters()) {
      EXPECT_TRUE(same_bits(h.whole(p.key()), p.value().detach())) << p.key();
    }
    EXPECT_EQ(h.counts().most_gathered, 2);
  });
}

TEST(FullyShard, AStepBetweenForwardAndBackwardIsRefused) {
  on_worlds(
      {1, 2, 3},
      [](const World& world) {
        auto net = std::make_shared<Eight>(8, 2);
        FullyShard h = fully_shard(net, world);
        torch::optim::SGD sgd(h.parameters(), 0.1);
        h.backward(net->forward(data({2, 8}, 0, 0)).sum());
        const torch::Tensor loss = net->forward(data({2, 8}, 0, 0)).sum();
        sgd.step();
        world->barrier();
        EXPECT_THAT(message_of<std::exception>([&] { h.backward(loss); }),
                    HasSubstr("modified by an inplace operation"));
      },
      test::Group::aborted);
}

TEST(FullyShard, WhatIsWrittenToTheModuleIsRefused) {
  on_worlds({1, 2}, [](const World& world) {
    auto net = std::make_shared<Eight>(8, 2);
    FullyShard h = fully_shard(net, world);
    {
      const torch::NoGradGuard no_grad;
      net->layer(0)->weight.fill_(1);
    }
    EXPECT_THAT(message_of<UsageError>([&] {
                  net->forward(data({2, 8}, 0, 0));
                }),
                HasSubstr("\"list.0.weight\" was written to"));
  });
}

TEST(FullyShard, ALayerThatOneRankSkipsIsNamed) {
  on_worlds(
      {2, 3},
      [](const World& world) {
        auto net = std::make_shared<Eight>();
        FullyShard h = fully_shard(net, world);
        world->barrier();
        const std::string message = message_of<CommError>([&] {
          net->forward(data({2, 16}, 0, 0), world->rank() == 1 ? 3 : -1);
        });
        EXPECT_THAT(message, HasSubstr("\"list.3\""));
        EXPECT_THAT(message, HasSubstr("\"list.4\""));
      },
      test::Group::aborted);
}

TEST(FullyShard, AnOperatorMayTakeSeveralUnits) {
  on_worlds({1, 2, 3}, [](const World& world) {
    auto net = std::make_shared<Eight>(8, 4);
    fill(*net);
    auto plain = std::make_shared<Eight>(8, 4);
    fill(*plain);
    FullyShard h = fully_shard(net, world);
    const auto loss_of = [](Eight& eight) {
      const torch::Tensor all =
          torch::cat({eight.layer(0)->weight, eight.layer(1)->weight, eight.layer(3)->weight});
      return (torch::mm(all, eight.layer(2)->weight).sum() +
              torch::mm(eight.layer(0)->weight, eight.layer(3)->weight).sum());
    };
    for (int step = 0; step < 3; ++step) {
      EXPECT_TRUE(same_bits(loss_of(*net).detach(), loss_of(*plain).detach()));
    }
  });
}

TEST(FullyShard, RecomputeGathersAgain) {
  on_worlds({1, 2, 3}, [](const World& world) {
    const auto train = [&](bool recompute) {
      auto net = std::make_shared<Eight>(16, 4);
      fill(*net);
      FullyShard h = fully_shard(net, world);
      torch::optim::SGD sgd(h.parameters(), 0.1);
      for (int step = 0; step < 3; ++step) {
        h.zero_grad();
        torch::Tensor x = data({2, 16}, step, world->rank());
        for (size_t i = 0; i < 4; ++i) {
          const auto layer = [&net, i](const torch::Tensor& in) {
            return net->layer(i)->forward(in).tanh();
          };
          x = recompute ? checkpoint(layer, x) : layer(x);
        }
        h.backward(x.square().sum());
        sgd.step();
      }
      EXPECT_EQ(h.counts().most_gathered, 2);
      EXPECT_EQ(h.counts().reductions, 3 * 4);
      return values_of(h);
    };
    expect_same(train(true), train(false));
  });
}

/// A weight used twice under recompute has two gradients in a backward; the first backward does not
/// expect the second one, and lets it travel by itself.
TEST(FullyShard, AGradientThatComesLateIsNotLost) {
  struct One : Parts {
    torch::Tensor w = add("0", "w", torch::full({1}, 2.0f));
  };
  on_worlds({1, 2, 3}, [](const World& world) {
    auto net = std::make_shared<One>();
    FullyShard h = fully_shard(net, world);
    const auto times = [&net](const torch::Tensor& x) { return x * net->w; };
    for (int step = 0; step < 3; ++step) {
      h.zero_grad();
      const torch::Tensor x =
          torch::full({1}, 1.0f + static_cast<float>(world->rank()), torch::requires_grad());
      h.backward(checkpoint(times, checkpoint(times, x)));
      torch::Tensor grad = torch::zeros({1});
      for (const auto& p : h.parameters()) grad += p.grad().sum();
      world->all_reduce(grad).wait();
      EXPECT_EQ(grad.item<float>(), 2.0f * static_cast<float>(world->size() + 1)) << step;
    }
  });
}

TEST(FullyShard, UnusedParametersAreNamedOnEveryRank) {
  on_worlds({1, 2, 3}, [](const World& world) {
    auto net = std::make_shared<Eight>(8, 3);
    FullyShard h = fully_shard(net, world);
    const std::string message = message_of<UsageError>([&] {
      h.backward(net->layer(0)->forward(data({2, 8}, 0, 0)).sum());
    });
    EXPECT_THAT(message, HasSubstr("\"list.2.weight\""));
    EXPECT_THAT(message, HasSubstr("rank 0"));
    EXPECT_THAT(message, HasSubstr("UnusedParameters::zero"));
    h.zero_grad();
    h.backward(net->forward(data({2, 8}, 0, 0)).sum());  // and all go on
    for (const auto& p : h.parameters()) EXPECT_TRUE(p.grad().defined());
  });
}

TEST(FullyShard, BackwardOnTheLossIsRefused) {
  on_worlds({1, 2}, [](const World& world) {
    auto net = std::make_shared<Eight>(8, 2);
    FullyShard h = fully_shard(net, world);
    const std::string message = message_of<UsageError>([&] {
      net->forward(data({2, 8}, 0, 0)).sum().backward();
    });
    EXPECT_THAT(message, HasSubstr("h.backward(loss)"));
  });
}

// ---- set-up ----

TEST(FullyShard, DDP_7_UnlikeModelsAreRefused) {
  on_worlds({2, 3}, [](const World& world) {
    const bool odd = world->rank() == 1;
    const auto refusal = [&](const std::shared_ptr<torch::nn::Module>& net,
                             const FullyShardOptions& options) {
      return message_of<UsageError>([&] { fully_shard(net, world, options); });
    };
    EXPECT_THAT(refusal(std::make_shared<torch::nn::LinearImpl>(4, odd ? 5 : 4), {}),
                HasSubstr("[5, 4]"));
    const auto four = std::make_shared<torch::nn::LinearImpl>(4, 4);
    EXPECT_THAT(refusal(four, {.prefetch = odd ? 2 : 1}), HasSubstr("prefetch 2"));
    EXPECT_THAT(
        refusal(four,
                {.unit_of = [odd](const std::string& path) { return odd ? path : std::string(); }}),
        HasSubstr("\"bias\" in unit \"bias\""));
  });
}

TEST(FullyShard, WhatCannotBeDividedIsRefused) {
  on_worlds({1, 2}, [](const World& world) {
    const auto refusal = [&](const std::shared_ptr<torch::nn::Module>& net) {
      return message_of<UsageError>([&] { fully_shard(net, world); });
    };
    auto wide = std::make_shared<torch::nn::LinearImpl>(2, 2);
    wide->to(torch::kDouble);
    EXPECT_THAT(refusal(wide), HasSubstr("dense float32"));
    struct Overlap : torch::nn::Module {
      Overlap() {
        const torch::Tensor all = torch::zeros({4});
        register_parameter("a", all.narrow(0, 0, 2).detach());
        register_parameter("b", all.narrow(0, 2, 2).detach());
      }
    };
    EXPECT_THAT(refusal(std::make_shared<Overlap>()), HasSubstr("on the same memory"));
    auto net = std::make_shared<torch::nn::LinearImpl>(2, 2);
    FullyShard h = fully_shard(net, world);
    EXPECT_THAT(refusal(net), HasSubstr("divided already"));
    EXPECT_THAT(message_of<UsageError>([&] { h.whole("weights"); }), HasSubstr("\"weights\""));
    EXPECT_THAT(message_of<UsageError>([&] { fully_shard(net, world, {.prefetch = -1}); }),
                HasSubstr("prefetch is -1"));
  });
}

TEST(FullyShard, AFrozenOrUnfrozenParameterIsNoticed) {
  on_worlds({1, 2}, [](const World& world) {
    auto net = std::make_shared<Eight>(8, 2);
    FullyShard h = fully_shard(net, world);
    net->layer(0)->bias.requires_grad_(false);
    EXPECT_THAT(message_of<UsageError>([&] {
                  h.backward(net->forward(data({2, 8}, 0, 0)).sum());
                }),
                HasSubstr("\"list.0.bias\" was frozen"));
  });
}

// ---- figures ----

TEST(FullyShard, MovesThreeShares) {
  on_worlds({2, 3, 4}, [](const World& world) {
    for (const bool reshard : {true, false}) {
      auto net = std::make_shared<Eight>(32, 4);
      FullyShard h = fully_shard(net, world, {.reshard_after_forward = reshard});
      const auto step = [&] { h.backward(net->forward(data({2, 32}, 0, 0)).sum()); };
      step();
      const int64_t before = h.counts().moved_bytes;
      const int64_t gathers = h.counts().gathers;
      h.zero_grad();
      step();
      const int64_t units = h.counts().gathers - gathers;
      EXPECT_EQ(units, reshard ? 6 : 4) << "the last unit stays, the first is not needed again";
      // Over all ranks: everyone reads what the others own of a unit, and owners read their slices
      // of everyone else's gradients.
      at::Tensor moved = at::full({1}, h.counts().moved_bytes - before, at::kLong);
      world->all_reduce(moved).wait();
      const int64_t others = world->size() - 1;
      const int64_t unit_bytes = 4 * (32 * 32 + 32);
      const int64_t numbers = units * 8 * others * world->size();
      const int64_t agreement = moved.item<int64_t>() - (units + 4) * unit_bytes * others - numbers;
      EXPECT_GT(agreement, 0);
      EXPECT_LE(agreement, 2 * 16 * others * world->size());
    }
  });
}

TEST(FullyShard, RanksHoldEqualShares) {
  on_worlds({1, 2, 3, 4}, [](const World& world) {
    auto net = std::make_shared<Eight>(64, 4);
    FullyShard h = fully_shard(net, world);
    at::Tensor sum = at::full({1}, h.counts().shard_bytes, at::kLong);
    world->all_reduce(sum).wait();
    const int64_t model = 4 * 4 * (64 * 64 + 64);
    EXPECT_EQ(sum.item<int64_t>(), model);
    // Cuts lie on chunks of 256 elements.
    EXPECT_NEAR(h.counts().shard_bytes, model / world->size(), 4 * 4 * 512);
    int64_t numel = 0;
    for (const auto& p : h.parameters()) numel += p.numel();
    EXPECT_EQ(numel * 4, h.counts().shard_bytes);
    EXPECT_EQ(h.parameters().size(), h.parameters(true).size() + h.parameters(false).size());
  });
}

TEST(FullyShard, IsAHandleThatMoves) {
  on_worlds({1, 2}, [](const World& world) {
    auto net = std::make_shared<Eight>(8, 2);
    std::optional<FullyShard> h;
    h.emplace(fully_shard(net, world));
    FullyShard other = std::move(*h);
    h.reset();
    other.backward(net->forward(data({2, 8}, 0, 0)).sum());
    EXPECT_EQ(&other.module(), net.get());
    EXPECT_EQ(&other.group(), world.get());
    const torch::NoGradGuard no_grad;
    net->forward(data({2, 8}, 0, 0));
    other.release();
  });
}

}  // namespace
}  // namespace lockstep
