#include "lockstep/train/distributed_data_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "tests/train/ranks.h"

namespace lockstep {
namespace {

using test::message_of;
using test::on_worlds;
using test::same_bits;
using test::World;
using ::testing::HasSubstr;

/// y = w * x, one number.
struct Scalar : torch::nn::Module {
  explicit Scalar(double value) {
    w = register_parameter("w", torch::full({1}, value, torch::kFloat));
  }
  torch::Tensor w;
};

/// f(f's input): computed without a graph, and again inside backward, as activation recompute does.
struct Recompute : torch::autograd::Function<Recompute> {
  static torch::Tensor forward(torch::autograd::AutogradContext* ctx, torch::Tensor x,
                               torch::Tensor w) {
    ctx->save_for_backward({x});
    ctx->saved_data["w"] = w;
    return x * w.detach();
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* ctx,
                                               torch::autograd::tensor_list grads) {
    torch::Tensor x = ctx->get_saved_variables()[0].detach().requires_grad_(true);
    const torch::Tensor w = ctx->saved_data["w"].toTensor();
    {
      const torch::AutoGradMode with_graph(true);
      (x * w).backward(grads[0]);  // accumulates into w here, once a use
    }
    return {x.grad(), torch::Tensor()};
  }
};

TEST(Ddp, DDP_1_AWeightUsedTwiceUnderRecompute) {
  on_worlds({2}, [](const World& world) {
    auto net = std::make_shared<Scalar>(2.0);
    DistributedDataParallel ddp(net, world);
    const torch::Tensor x = torch::full({1}, world->rank() == 0 ? 1.0f : 3.0f).requires_grad_(true);
    for (int step = 0; step < 3; ++step) {
      ddp.zero_grad();
      ddp.backward(Recompute::apply(Recompute::apply(x, net->w), net->w));
      EXPECT_EQ(net->w.grad().item<float>(), 8.0f) << "step " << step;
      EXPECT_EQ(ddp.reductions(), step + 1);
    }
  });
}

/// The second backward uses the weight once more than the first: what comes after the bucket has
/// gone travels by itself.
TEST(Ddp, AGradientThatComesAfterItsBucketIsNotLost) {
  on_worlds({1, 2, 3}, [](const World& world) {
    auto net = std::make_shared<Scalar>(2.0);
    DistributedDataParallel ddp(net, world);
    const float mine = 1.0f + static_cast<float>(world->rank());
    const torch::Tensor x = torch::full({1}, mine).requires_grad_(true);
    const auto step = [&](bool twice) {
      ddp.zero_grad();
      torch::Tensor y = Recompute::apply(x, net->w);
      if (twice) y = Recompute::apply(y, net->w);
      ddp.backward(y);
      return net->w.grad().item<float>();
    };
    const float mean_x = static_cast<float>(world->size() + 1) / 2;
    EXPECT_EQ(step(false), mean_x);
    EXPECT_EQ(step(world->rank() == 0), mean_x + 3.0f / static_cast<float>(world->size()))
        << "rank 0: 2 w x = 4, the others: x";
    EXPECT_EQ(step(false), mean_x);
    EXPECT_EQ(step(true), 4 * mean_x);
  });
}

/// loss = g * w with g this rank's and this step's gradient.
torch::Tensor loss_with_gradient(const Scalar& net, double g) { return (net.w * g).sum(); }

TEST(Ddp, DDP_2_NoSyncAroundTheWholeOrBackwardOnly) {
  on_worlds({2}, [](const World& world) {
    const double micro[2][2] = {{1, 3}, {5, 7}};
    const auto* mine = micro[world->rank()];
    for (const bool around_forward : {true, false}) {
      for (const bool call_loss : {true, false}) {
        auto net = std::make_shared<Scalar>(1.0);
        DistributedDataParallel ddp(net, world);
        for (int step = 0; step < 3; ++step) {
          ddp.zero_grad();
          torch::Tensor loss;
          if (!around_forward) loss = loss_with_gradient(*net, mine[0]) / 2;
          {
            const auto local = ddp.no_sync();
            if (around_forward) loss = loss_with_gradient(*net, mine[0]) / 2;
            if (call_loss) {
              loss.backward();
            } else {
              ddp.backward(loss);
            }
          }
          EXPECT_EQ(net->w.grad().item<double>(), mine[0] / 2) << "not reduced yet";
          ddp.backward(loss_with_gradient(*net, mine[1]) / 2);
          EXPECT_EQ(net->w.grad().item<double>(), 4.0);
          EXPECT_EQ(ddp.reductions(), step + 1);
        }
      }
    }
  });
}

TEST(Ddp, BackwardOnTheLossOutsideNoSyncIsRefused) {
  on_worlds({2}, [](const World& world) {
    auto net = std::make_shared<Scalar>(1.0);
    DistributedDataParallel ddp(net, world);
    const std::string message =
        message_of<UsageError>([&] { loss_with_gradient(*net, 1).backward(); });
    EXPECT_THAT(message, HasSubstr("\"w\""));
    EXPECT_THAT(message, HasSubstr("ddp.backward(loss)"));
    ddp.zero_grad();
    ddp.backward(loss_with_gradient(*net, world->rank() + 1));
    EXPECT_EQ(net->w.grad().item<double>(), 1.5);
  });
}

TEST(Ddp, DDP_3_UnevenInputs) {
  for (const JoinDivisor divisor : {JoinDivisor::world, JoinDivisor::live}) {
    on_worlds({2}, [&](const World& world) {
      auto net = std::make_shared<torch::nn::LinearImpl>(3, 2);
      DistributedDataParallel ddp(
          net, world, {.bucket_bytes = 64, .first_bucket_bytes = 16});  // weight and bias apart
      torch::optim::SGD sgd(net->parameters(), 0.1);
      std::vector<double> seen;
      ddp.join(
          [&] {
            for (int batch = 0; batch < (world->rank() == 0 ? 3 : 1); ++batch) {
              ddp.zero_grad();
              ddp.backward(4 * (net->weight.sum() + net->bias.sum()));
              seen.push_back(net->weight.grad()[1][2].item<double>());
              EXPECT_EQ(net->bias.grad()[0].item<double>(), seen.back());
              sgd.step();
            }
          },
          divisor);
      const double later = divisor == JoinDivisor::world ? 2 : 4;
      EXPECT_EQ(seen, world->rank() == 0 ? (std::vector<double>{4, later, later})
                                         : (std::vector<double>{4}));
      ddp.verify_replicas();
      // And all go on together.
      ddp.zero_grad();
      ddp.backward(net->weight.sum() + net->bias.sum());
      EXPECT_EQ(net->bias.grad()[0].item<double>(), 1.0);
    });
  }
}

/// Three ranks with 0, 2 and 5 batches; nobody clears gradients, so each step adds to them.
TEST(Ddp, JoinAddsToGradientsThatAreThere) {
  on_worlds({3}, [](const World& world) {
    auto net = std::make_shared<Scalar>(1.0);
    DistributedDataParallel ddp(net, world);
    const int batches = std::vector<int>{0, 2, 5}[static_cast<size_t>(world->rank())];
    double last = 0;
    ddp.join([&] {
      for (int b = 0; b < batches; ++b) ddp.backward(loss_with_gradient(*net, 3));
      if (batches > 0) last = net->w.grad().item<double>();
    });
    if (world->rank() == 1) {
      EXPECT_EQ(last, 4.0) << "2 + 2";
    }
    if (world->rank() == 2) {
      EXPECT_NEAR(last, 7.0, 1e-6) << "2 + 2 + 1 + 1 + 1";
    }
  });
}

TEST(Ddp, DDP_4_StaticGraphWithAccumulation) {
  on_worlds({2, 3}, [](const World& world) {
    const auto train = [&](bool static_graph) {
      torch::nn::Sequential net(torch::nn::Linear(5, 7), torch::nn::Tanh(),
                                torch::nn::Linear(7, 3));
      for (auto& p : net->parameters()) {
        const torch::NoGradGuard no_grad;
        p.copy_(torch::linspace(-1, 1, p.numel()).view_as(p));
      }
      DistributedDataParallel ddp(net, world, {.static_graph = static_graph, .bucket_bytes = 64});
      torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
      for (int step = 0; step < 4; ++step) {
        ddp.zero_grad();
        for (int k = 0; k < 2; ++k) {
          const torch::Tensor x =
              torch::linspace(0, 1 + world->rank(), 20).view({4, 5}) * (1 + k + step);
          const torch::Tensor loss = net->forward(x).square().mean() / 2;
          if (k == 0) {
            const auto local = ddp.no_sync();
            ddp.backward(loss);
          } else {
            ddp.backward(loss);
          }
        }
        sgd.step();
        ddp.verify_replicas();
      }
      std::vector<torch::Tensor> values;
      for (const auto& p : net->parameters()) values.push_back(p.detach().clone());
      return values;
    };
    const auto open = train(false);
    const auto fixed = train(true);
    for (size_t p = 0; p < open.size(); ++p) EXPECT_TRUE(same_bits(open[p], fixed[p])) << p;
  });
}

TEST(Ddp, DDP_5_ClearingGradientsKeepsTheBucket) {
  on_worlds({2}, [](const World& world) {
    auto net = std::make_shared<torch::nn::LinearImpl>(1, 1);
    DistributedDataParallel ddp(net, world);
    const auto backward = [&](double g) { ddp.backward(g * (net->weight + net->bias).sum()); };
    const double g1 = world->rank() == 0 ? 1 : 3;
    const double g2 = world->rank() == 0 ? 5 : 7;
    backward(g1);
    EXPECT_EQ(net->weight.grad().item<double>(), 2);
    const void* slot = net->weight.grad().data_ptr();
    const void* bias_slot = net->bias.grad().data_ptr();
    net->weight.mutable_grad() = torch::Tensor();
    net->bias.mutable_grad() = torch::Tensor();
    backward(g2);
    EXPECT_EQ(net->weight.grad().item<double>(), 6);
    EXPECT_EQ(net->bias.grad().item<double>(), 6);
    EXPECT_EQ(net->weight.grad().data_ptr(), slot);

    net->weight.mutable_grad() = torch::Tensor();  // one of two
    backward(g2);
    EXPECT_EQ(net->weight.grad().item<double>(), 6);
    EXPECT_EQ(net->bias.grad().item<double>(), 12);
    EXPECT_EQ(net->bias.grad().data_ptr(), bias_slot);

    net->zero_grad(/*set_to_none=*/false);
    net->weight.mutable_grad() = torch::full({1, 1}, 1.0f);  // a tensor of the user's own
    backward(g1);
    EXPECT_EQ(net->weight.grad().item<double>(), 3);
    EXPECT_EQ(net->weight.grad().data_ptr(), slot);
    EXPECT_EQ(net->bias.grad().item<double>(), 2);
  });
}

TEST(Ddp, DDP_6_GradientPenalty) {
  on_worlds({2}, [](const World& world) {
    auto net = std::make_shared<Scalar>(3.0);
    DistributedDataParallel ddp(net, world);
    torch::Tensor x = torch::full({1}, 1.0f + static_cast<float>(world->rank()));
    x.requires_grad_(true);
    const torch::Tensor f = net->w * x * x / 2;
    const auto slope = torch::autograd::grad({f}, {x}, {}, /*retain_graph=*/true,
                                             /*create_graph=*/true)[0];
    ddp.backward(slope.square());
    EXPECT_FLOAT_EQ(net->w.grad().item<float>(), 15.0f);
  });
}

/// Every rank, rank 0 included, names the first difference; no rank has taken a weight.
TEST(Ddp, DDP_7_UnlikeModelsAreRefused) {
  struct Named : torch::nn::Module {
    explicit Named(const std::vector<std::pair<std::string, int64_t>>& parameters) {
      for (const auto& [name, size] : parameters) {
        register_parameter(name, torch::full({size}, 5.0));
      }
    }
  };
  using List = std::vector<std::pair<std::string, int64_t>>;
  const std::vector<std::pair<List, List>> pairs = {
      {{{"a", 4}, {"b", 4}}, {{"a", 4}, {"b", 5}}},
      {{{"a", 4}}, {{"a", 4}, {"b", 4}}},
      {{{"a", 4}, {"b", 4}}, {{"b", 4}, {"a", 4}}},
  };
  const std::vector<std::vector<std::string>> wanted = {
      {"\"b\" [4]", "\"b\" [5]"}, {"nothing more", "\"b\" [4]"}, {"\"a\" [4]", "\"b\" [4]"}};
  for (size_t i = 0; i < pairs.size(); ++i) {
    on_worlds({2, 3}, [&](const World& world) {
      const bool last = world->rank() == world->size() - 1;
      auto net = std::make_shared<Named>(last ? pairs[i].second : pairs[i].first);
      const std::string message =
          message_of<UsageError>([&] { DistributedDataParallel ddp(net, world); });
      for (const std::string& part : wanted[i]) EXPECT_THAT(message, HasSubstr(part));
      EXPECT_THAT(message, HasSubstr(base::str("rank ", world->size() - 1, " has")));
    });
  }
}

TEST(Ddp, OptionsMustAgree) {
  on_worlds({2}, [](const World& world) {
    auto net = std::make_shared<Scalar>(1.0);
    const Reduction mine = world->rank() == 0 ? Reduction::mean : Reduction::sum;
    const std::string message = message_of<UsageError>(
        [&] { DistributedDataParallel ddp(net, world, {.reduction = mine}); });
    EXPECT_THAT(message, HasSubstr("reduction mean"));
    EXPECT_THAT(message, HasSubstr("reduction sum"));
  });
}

TEST(Ddp, AllTakeRankZerosParametersAndBuffers) {
  on_worlds({1, 2, 3, 4}, [](const World& world) {
    torch::nn::Sequential net(torch::nn::Linear(3, 5), torch::nn::BatchNorm1d(5));
    {
      const torch::NoGradGuard no_grad;
      for (auto& p : net->parameters()) p.fill_(1 + world->rank());
      for (auto& b : net->buffers()) b.fill_(10 + world->rank());
    }
    DistributedDataParallel ddp(net, world);
    for (const auto& p : net->parameters()) EXPECT_EQ(p.min().item<float>(), 1.0f);
    for (const auto& b : net->buffers()) EXPECT_EQ(b.min().item<double>(), 10.0);
  });
}

TEST(Ddp, BuffersFollowRankZeroOrStayTheirOwn) {
  for (const BufferSync sync : {BufferSync::every_step, BufferSync::at_start}) {
    on_worlds({2, 3}, [&](const World& world) {
      torch::nn::Sequential net(torch::nn::BatchNorm1d(2), torch::nn::Linear(2, 1));
      DistributedDataParallel ddp(net, world, {.buffers = sync});
      for (int step = 0; step < 2; ++step) {
        ddp.zero_grad();
        const torch::Tensor x = torch::linspace(0, 1, 8).view({4, 2}) + world->rank();
        ddp.backward(net->forward(x).sum());
      }
      const double mean = net->named_buffers()["0.running_mean"][0].item<double>();
      const double alone = 0.428571 * 0.19 + 0.19 * world->rank();
      if (sync == BufferSync::at_start) {
        EXPECT_NEAR(mean, alone, 1e-5);
      }
      if (sync == BufferSync::every_step) {
        EXPECT_NEAR(mean, 0.428571 * 0.19, 1e-5);
      }
    });
  }
}

TEST(Ddp, SumsWhenAskedTo) {
  on_worlds({1, 2, 3}, [](const World& world) {
    auto net = std::make_shared<Scalar>(1.0);
    DistributedDataParallel ddp(net, world, {.reduction = Reduction::sum});
    const int ranks = world->size();
    const double total = ranks * (ranks + 1) / 2.0;
    ddp.backward(loss_with_gradient(*net, world->rank() + 1));
    EXPECT_EQ(net->w.grad().item<double>(), total);
    // Not cleared: what is there counts once, not once a rank.
    ddp.backward(loss_with_gradient(*net, world->rank() + 1));
    EXPECT_EQ(net->w.grad().item<double>(), 2 * total);
    {
      const auto local = ddp.no_sync();
      ddp.backward(loss_with_gradient(*net, world->rank() + 1));
    }
    ddp.backward(loss_with_gradient(*net, world->rank() + 1));
    EXPECT_EQ(net->w.grad().item<double>(), 4 * total);
  });
}

struct WithIdle : torch::nn::Module {
  WithIdle() {
    used = register_parameter("used", torch::ones({3}));
    idle = register_parameter("idle", torch::ones({2}));
    empty = register_parameter("empty", torch::ones({0, 4}));
    frozen = register_parameter("frozen", torch::ones({2}), /*requires_grad=*/false);
  }
  torch::Tensor used, idle, empty, frozen;
};

TEST(Ddp, UnusedParametersAreNamedOnEveryRank) {
  on_worlds({1, 2, 3}, [](const World& world) {
    auto net = std::make_shared<WithIdle>();
    DistributedDataParallel ddp(net, world);
    const bool last = world->rank() == world->size() - 1;
    const auto loss = [&](bool with_idle) {
      const torch::Tensor base = net->used.sum() + net->empty.sum() + net->frozen.sum();
      return with_idle ? base + net->idle.sum() : base;
    };
    ddp.backward(loss(true));
    const std::string message = message_of<UsageError>([&] { ddp.backward(loss(!last)); });
    EXPECT_THAT(message, HasSubstr(base::str("rank ", world->size() - 1, ": \"idle\"")));
    EXPECT_THAT(message, ::testing::Not(HasSubstr("frozen\"")));
    EXPECT_THAT(message, HasSubstr("UnusedParameters::zero"));
    // The group is as good as before.
    ddp.zero_grad();
    ddp.backward(loss(true));
    EXPECT_EQ(net->idle.grad()[0].item<double>(), 1.0);
  });
}

TEST(Ddp, UnusedParametersCountAsZeroWhenAskedTo) {
  on_worlds({1, 2, 3, 4}, [](const World& world) {
    auto net = std::make_shared<WithIdle>();
    DistributedDataParallel ddp(net, world, {.unused = UnusedParameters::zero});
    torch::optim::SGD sgd(net->parameters(), 0.5);
    const bool mine = world->rank() == 0;
    for (int step = 0; step < 3; ++step) {
      const bool use = mine && step != 1;
      ddp.zero_grad();
      ddp.backward(net->used.sum() + (use ? net->idle.sum() : net->used.sum() * 0));
      const double expected = step == 1 ? 0.0 : 1.0 / world->size();
      EXPECT_FLOAT_EQ(net->idle.grad()[1].item<float>(), static_cast<float>(expected));
      EXPECT_EQ(net->empty.grad().numel(), 0);
      sgd.step();
    }
    ddp.verify_replicas();
  });
}

TEST(Ddp, AFrozenOrUnfrozenParameterIsNoticed) {
  on_worlds({2}, [](const World& world) {
    auto net = std::make_shared<WithIdle>();
    DistributedDataParallel ddp(net, world, {.unused = UnusedParameters::zero});
    net->frozen.requires_grad_(true);
    EXPECT_THAT(message_of<UsageError>([&] { ddp.backward(net->used.sum()); }),
                HasSubstr("\"frozen\" was unfrozen"));
    net->frozen.requires_grad_(false);
    net->idle.requires_grad_(false);
    EXPECT_THAT(message_of<UsageError>([&] { ddp.backward(net->used.sum()); }),
                HasSubstr("\"idle\" was frozen"));
  });
}

TEST(Ddp, ASparseGradientIsRefused) {
  on_worlds(
      {1, 2},
      [](const World& world) {
        auto net = std::make_shared<torch::nn::EmbeddingImpl>(
            torch::nn::EmbeddingOptions(5, 2).sparse(true));
        DistributedDataParallel ddp(net, world);
        world->barrier();  // an abort ends what peers are still setting up, too
        const std::string message =
            message_of<std::exception>([&] { ddp.backward(net->forward(torch::arange(3)).sum()); });
        EXPECT_THAT(message, HasSubstr("sparse"));
      },
      test::Group::aborted);
}

TEST(Ddp, AStaticGraphThatChangesIsNoticed) {
  on_worlds(
      {1},
      [](const World& world) {
        auto net = std::make_shared<WithIdle>();
        DistributedDataParallel ddp(net, world, {.static_graph = true});
        const auto loss = [&] { return net->used.sum() + net->empty.sum(); };
        ddp.backward(loss() + net->idle.sum());
        EXPECT_THAT(message_of<UsageError>([&] { ddp.backward(loss()); }),
                    HasSubstr("\"idle\" took no part"));
      },
      test::Group::aborted);
}

TEST(Ddp, TypesTravelInTheirOwn) {
  on_worlds({1, 2, 3}, [](const World& world) {
    struct Mixed : torch::nn::Module {
      Mixed() {
        for (const auto type : {torch::kFloat, torch::kDouble, torch::kBFloat16, torch::kHalf}) {
          p.push_back(register_parameter(torch::toString(type), torch::ones({3}, type)));
        }
      }
      std::vector<torch::Tensor> p;
    };
    auto net = std::make_shared<Mixed>();
    DistributedDataParallel ddp(net, world);
    torch::Tensor loss = torch::zeros({}, torch::kDouble);
    for (const auto& p : net->p) loss = loss + (p.to(torch::kDouble) * (world->rank() + 1)).sum();
    ddp.backward(loss);
    for (const auto& p : net->p) {
      EXPECT_EQ(p.grad().scalar_type(), p.scalar_type());
      EXPECT_EQ(p.grad()[2].item<double>(), (world->size() + 1) / 2.0) << p.scalar_type();
    }
  });
}

TEST(Ddp, AMeanOfLargeHalfsDoesNotOverflow) {
  on_worlds({4}, [](const World& world) {
    struct Half : torch::nn::Module {
      Half() { p = register_parameter("p", torch::ones({2}, torch::kHalf)); }
      torch::Tensor p;
    };
    auto net = std::make_shared<Half>();
    DistributedDataParallel ddp(net, world);
    ddp.backward((net->p.to(torch::kFloat) * 40000).sum());
    EXPECT_EQ(net->p.grad()[0].item<double>(), 40000.0);
  });
}

/// One tensor under two names: one gradient, the sum of its uses, reduced once.
TEST(Ddp, SharedParametersAreOne) {
  struct Tied : torch::nn::Module {
    Tied() {
      a = register_parameter("a", torch::full({1}, 2.0));
      b = register_parameter("b", a);
    }
    torch::Tensor a, b;
  };
  on_worlds({1, 2, 3}, [](const World& world) {
    auto net = std::make_shared<Tied>();
    DistributedDataParallel ddp(net, world);
    torch::optim::SGD sgd({net->a}, 0.1);
    const double x = world->rank() + 1;
    ddp.backward((net->b * (net->a * x)).sum());  // 2 w x
    const double mean = 4 * (world->size() + 1) / 2.0;
    EXPECT_FLOAT_EQ(net->a.grad().item<float>(), static_cast<float>(mean));
    sgd.step();
    EXPECT_EQ(net->b.item<float>(), net->a.item<float>());
    EXPECT_EQ(ddp.bucket_bytes(), 16 * 4);
  });
}

TEST(Ddp, DriftIsFound) {
  on_worlds({2, 3}, [](const World& world) {
    auto net = std::make_shared<torch::nn::LinearImpl>(3, 2);
    DistributedDataParallel ddp(net, world);
    ddp.verify_replicas();
    if (world->rank() == world->size() - 1) {
      const torch::NoGradGuard no_grad;
      net->bias[1] += 1e-7f;
    }
    const std::string message = message_of<CommError>([&] { ddp.verify_replicas(); });
    EXPECT_THAT(message, HasSubstr("\"bias\""));
    EXPECT_THAT(message, HasSubstr(base::str("rank ", world->size() - 1)));
  });
}

/// An all-reduce a bucket and no more: each rank reads its slice of the others' and writes it to
/// them, 2 (N-1)/N of the bytes.
TEST(Ddp, MovesItsBuckets) {
  on_worlds({1, 2, 3, 4}, [](const World& world) {
    torch::nn::Sequential net(torch::nn::Linear(40, 30), torch::nn::Linear(30, 200));
    DistributedDataParallel ddp(
        net, world, {.static_graph = true, .bucket_bytes = 8000, .first_bucket_bytes = 100});
    const auto step = [&] {
      ddp.zero_grad();
      ddp.backward(net->forward(torch::ones({2, 40})).sum());
    };
    step();
    world->barrier();
    world->reset_totals();
    const int64_t before = ddp.reductions();
    step();
    // Buckets: bias 200; weight 6,000, larger than the limit, alone; bias 30 and weight 1,200.
    EXPECT_EQ(ddp.reductions() - before, 3);
    const int64_t elements = 208 + 6000 + (32 + 1200);
    EXPECT_EQ(ddp.bucket_bytes(), 4 * elements);
    at::Tensor moved = at::full({1}, world->totals().bytes, at::kLong);
    world->all_reduce(moved).wait();
    EXPECT_EQ(moved.item<int64_t>(), 2 * (world->size() - 1) * 4 * elements);
  });
}

}  // namespace
}  // namespace lockstep
