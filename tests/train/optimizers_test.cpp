// Every optimizer has the same bits on any layout: what it sums over a whole parameter, too.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/plan/optimizers.h"
#include "lockstep/train/training.h"
#include "tests/train/run_bits.h"
#include "tests/train/tiny_run.h"

namespace lockstep {
namespace {

using testing::Bits;
using testing::bits_of;
using testing::expect_planned_bytes;
using testing::TinyRun;

/// Parameters of several chunks of a norm, which shards and grains cut.
struct OptimizerRun : TinyRun {
  explicit OptimizerRun(const std::string& name) {
    config.run.steps = 3;
    config.model.width = 20;
    config.model.context = 12;
    config.data.micro_batch = 1;
    config.optim.name = name;
    if (name == "lars") config.optim.trust = 0.1;
  }
};

struct Layout {
  int tensor = 1;
  int pipeline = 1;
  int context = 1;
  int data = 1;
  const char* shard = "none";
  int replicas = 1;
};

std::ostream& operator<<(std::ostream& out, const Layout& layout) {
  return out << "tp " << layout.tensor << " pp " << layout.pipeline << " cp " << layout.context
             << " dp " << layout.data << " " << layout.shard << " replicas " << layout.replicas;
}

nlohmann::json run_on(TinyRun& run, const Layout& layout) {
  auto& parallel = run.config.parallel;
  parallel.tensor = layout.tensor;
  parallel.pipeline = layout.pipeline;
  parallel.context = layout.context;
  parallel.shard = layout.shard;
  parallel.replicas = layout.replicas;
  return run.run(layout.tensor * layout.pipeline * layout.context * layout.data);
}

void expect_same(TinyRun& run, const std::vector<Layout>& layouts) {
  const nlohmann::json alone = run_on(run, {});
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(::testing::PrintToString(layout));
    const nlohmann::json summary = run_on(run, layout);
    EXPECT_EQ(bits_of(summary), bits_of(alone));
    expect_planned_bytes(summary);
  }
}

class Optimizers : public ::testing::TestWithParam<const char*> {};

TEST_P(Optimizers, DataRanksHaveTheBitsOfOneRank) {
  OptimizerRun run(GetParam());
  expect_same(run, {{.data = 2}, {.data = 3}, {.data = 4}});
}

TEST_P(Optimizers, ShardsHaveTheBitsOfOneRank) {
  OptimizerRun run(GetParam());
  expect_same(run, {{.data = 2, .shard = "zero1"},
                    {.data = 3, .shard = "zero1"},
                    {.data = 3, .shard = "zero2"},
                    {.data = 4, .shard = "zero3"},
                    {.data = 4, .shard = "zero3", .replicas = 2}});
}

/// A tied head, whose weight two stages hold and one counts.
TEST_P(Optimizers, PartsOfAModelHaveTheBitsOfOneRank) {
  OptimizerRun run(GetParam());
  run.config.run.steps = 2;
  run.config.numerics.tensor_grains = 2;
  run.config.numerics.context_grains = 2;
  expect_same(run, {{.tensor = 2},
                    {.pipeline = 2},
                    {.context = 2},
                    {.tensor = 2, .data = 2, .shard = "zero1"},
                    {.pipeline = 2, .data = 2, .shard = "zero3"}});
}

/// The bytes that the run counted are the plan's: 4 for each moment of an element.
TEST_P(Optimizers, StateTakesWhatThePlanSays) {
  OptimizerRun run(GetParam());
  run.config.run.steps = 1;
  const int moments = plan::traits_of(plan::parse_optimizer(GetParam())).moments;
  const int64_t whole = 4 * moments * plan::parameter_count(run.config);
  const auto held = [](const nlohmann::json& summary) {
    int64_t bytes = 0;
    for (const auto& rank : summary["ranks"]) {
      bytes += rank["peak_bytes"]["optimizer"].get<int64_t>();
    }
    return bytes;
  };
  EXPECT_EQ(held(run_on(run, {})), whole);
  EXPECT_EQ(held(run_on(run, {.data = 3, .shard = "zero2"})), whole) << "all ranks together";
}

INSTANTIATE_TEST_SUITE_P(All, Optimizers, ::testing::Values("adamw", "sgd", "lars", "lamb"),
                         [](const auto& info) { return std::string(info.param); });

/// A matrix, biases and a gain, all ones at first: a layer, and what is in none.
struct Ones : torch::nn::Module {
  Ones()
      : norm(register_module(
            "norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions(std::vector<int64_t>{2})))),
        layers(register_module("h", torch::nn::ModuleList())) {
    layers->push_back(torch::nn::Linear(2, 2));
  }
  torch::nn::LinearImpl& fc() { return *layers[0]->as<torch::nn::Linear>(); }
  at::Tensor forward(const at::Tensor& x) { return fc().forward(norm(x)); }
  torch::nn::LayerNorm norm;
  torch::nn::ModuleList layers;
};

struct Points : torch::data::datasets::Dataset<Points> {
  torch::data::Example<> get(size_t index) override {
    const at::Tensor x = torch::arange(2, torch::kFloat) * static_cast<float>(1 + index);
    return {x, x};
  }
  c10::optional<size_t> size() const override { return 8; }
};

struct Values {
  std::vector<float> weight, bias, gain;
  bool operator==(const Values&) const = default;
};

std::vector<float> list(const at::Tensor& x) {
  const at::Tensor flat = x.detach().clone().reshape({-1});
  return {flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel()};
}

/// What a step leaves; of zero3, whose parameters are not gathered here, the digest alone.
struct Outcome {
  Values values;
  std::string digest;
};

/// The outcome of a step of `optimizer` whose gradients are those of `slope` times the output.
Outcome after_a_step(int ranks, Shard shard, const optim::OptimizerOptions& optimizer,
                     const TrainingRates& rates, double slope) {
  Outcome outcome;
  net::run_on_threads(ranks, [&](const std::shared_ptr<net::Group>& world) {
    TrainingOptions options{.global_batch = 4, .micro_batch = 1, .grains = 4, .shard = shard};
    options.init_of = [](const std::string&) { return plan::Init{.kind = plan::Init::Kind::ones}; };
    Training t(std::make_shared<ProcessGroup>(world), options);
    auto net = t.build<Ones>();
    auto opt = t.optimizer(net, optimizer, rates);
    Points points;
    for (auto& step : t.steps(points, 1)) {
      for (auto& mb : step) step.backward((net->forward(mb.x) * slope).sum(), mb.tokens);
      opt.step(step);
    }
    Outcome mine{.values = {}, .digest = t.digest()};
    if (shard != Shard::zero3)
      mine.values = {list(net->fc().weight), list(net->fc().bias), list(net->norm->weight)};
    if (world->rank() == 0) outcome = mine;
  });
  return outcome;
}

/// Calls body(values) for each mode in which a step leaves them, on 1 to 3 ranks; zero3 has their
/// digest.
template <class Body>
void in_all_modes(const optim::OptimizerOptions& optimizer, const TrainingRates& rates,
                  double slope, const Body& body) {
  for (const int ranks : {1, 2, 3}) {
    SCOPED_TRACE(ranks);
    const Outcome whole = after_a_step(ranks, Shard::none, optimizer, rates, slope);
    body(whole.values);
    for (const Shard shard : {Shard::zero1, Shard::zero2}) {
      body(after_a_step(ranks, shard, optimizer, rates, slope).values);
    }
    EXPECT_EQ(after_a_step(ranks, Shard::zero3, optimizer, rates, slope).digest, whole.digest);
  }
}

/// What decays goes by the logical parameter's shape, not by that of a shard.
TEST(DecayGroups, ZERO_10_BiasesAndGainsDoNotDecayInAnyMode) {
  const std::vector<float> one(2, 1.0f);
  const auto expect = [&](const Values& values) {
    EXPECT_EQ(values.weight, std::vector<float>(4, 0.99f));
    EXPECT_EQ(values.bias, one);
    EXPECT_EQ(values.gain, one);
  };
  in_all_modes(optim::AdamWOptions{.weight_decay = 0.1}, {.lr = 0.1}, /*slope=*/0, expect);
  in_all_modes(optim::SgdOptions{.weight_decay = 0.1}, {.lr = 0.1}, /*slope=*/0, expect);
}

TEST(DecayGroups, AGroupSaysOtherwise) {
  const TrainingRates rates{
      .lr = 0.1,
      .groups = {{.pattern = "h.*", .decay = false}, {.pattern = "norm.weight", .decay = true}}};
  in_all_modes(optim::AdamWOptions{.weight_decay = 0.1}, rates, /*slope=*/0,
               [](const Values& values) {
                 EXPECT_EQ(values.weight, std::vector<float>(4, 1.0f));
                 EXPECT_EQ(values.bias, std::vector<float>(2, 1.0f));
                 EXPECT_EQ(values.gain, std::vector<float>(2, 0.99f));
               });
}

/// Without momentum and decay a step is its rate times the gradient: groups have their own peaks.
TEST(RateGroups, LR_1_EachGroupFollowsItsOwnPeak) {
  const optim::SgdOptions sgd{.momentum = 0, .weight_decay = 0};
  const Values plain = after_a_step(2, Shard::none, sgd, {.lr = 0.25, .grad_clip = 0}, 1).values;
  EXPECT_NE(plain.bias[0], 1.0f);
  const TrainingRates rates{
      .lr = 0.25,
      .grad_clip = 0,
      .groups = {{.pattern = "norm.*", .lr_factor = 0.5}, {.pattern = "*.bias", .lr_factor = 0}}};
  in_all_modes(sgd, rates, 1, [&](const Values& values) {
    EXPECT_EQ(values.weight, plain.weight);
    EXPECT_EQ(values.bias, std::vector<float>(2, 1.0f));
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_NEAR(values.gain[i] - 1, (plain.gain[i] - 1) / 2, 0x1p-22);
    }
  });
  EXPECT_THROW(after_a_step(1, Shard::none, sgd, {.groups = {{.pattern = "scale"}}}, 1),
               UsageError);
}

}  // namespace
}  // namespace lockstep
