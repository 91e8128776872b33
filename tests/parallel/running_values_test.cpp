// Running values have one result, whoever computed the step's micro-batches.
#include "lockstep/parallel/norm/running_values.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/group_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "lockstep/base/counter_random.h"
#include "lockstep/base/error.h"
#include "lockstep/parallel/norm/channel_norm.h"
#include "tests/comm/on_ranks.h"

namespace lockstep::parallel {
namespace {

constexpr int kLeaves = 5;
constexpr int kMicros = 2;

at::Tensor batch_of(int leaf, int micro) {
  at::Tensor x = at::empty({3, 8, 2, 2});
  const auto key =
      base::RandomKey(9).with(static_cast<uint64_t>(leaf)).with(static_cast<uint64_t>(micro));
  for (int64_t i = 0; i < x.numel(); ++i) {
    x.data_ptr<float>()[i] = static_cast<float>(key.normal(static_cast<uint64_t>(i)) + leaf);
  }
  return x;
}

/// A norm of a few steps in which this rank has the leaves that `has` says.
struct Values {
  at::Tensor mean, variance;
};
Values run(ProcessGroup& group, const std::function<bool(int leaf)>& has, bool twice = false) {
  const at::NoGradGuard no_grad;
  const auto share = std::make_shared<NormShare>();
  ChannelNorm norm(NormKind::batch, 8, share);
  norm.weight.fill_(1);
  norm.bias.zero_();
  RankContext context;
  for (int step = 0; step < 3; ++step) {
    for (int leaf = 0; leaf < kLeaves; ++leaf) {
      if (!has(leaf)) continue;
      for (int micro = 0; micro < kMicros; ++micro) {
        context.leaf = leaf;
        context.micro = micro;
        for (int time = 0; time <= (twice ? 1 : 0); ++time) {
          norm.forward(batch_of(leaf, micro), context);
        }
      }
    }
    context.training = false;
    norm.forward(batch_of(7, 0), context);  // an evaluation in between counts nowhere
    context.training = true;
    share->running.update(group, kLeaves);
  }
  return {norm.running_mean.clone(), norm.running_var.clone()};
}

TEST(RunningValues, OneResultOnEveryLayout) {
  Values alone;
  test::on_ranks({1}, [&](ProcessGroup& world) { alone = run(world, [](int) { return true; }); });
  test::on_ranks({1, 2, 3, 4}, [&](ProcessGroup& world) {
    const int each = (kLeaves + world.size() - 1) / world.size();
    for (const bool twice : {false, true}) {
      const Values runs = run(
          world, [&](int leaf) { return leaf / each == world.rank(); }, twice);
      EXPECT_TRUE(test::same_bits(runs.mean, alone.mean));
      EXPECT_TRUE(test::same_bits(runs.variance, alone.variance));
    }
    const Values rounds = run(world, [&](int leaf) { return leaf % world.size() == world.rank(); });
    EXPECT_TRUE(test::same_bits(rounds.mean, alone.mean));
    EXPECT_TRUE(test::same_bits(rounds.variance, alone.variance));
    world.barrier();
  });
}

/// In any other order the ones next to the large numbers are lost or kept otherwise.
TEST(RunningValues, LeavesMeetInTheSumTree) {
  constexpr double kMeans[kLeaves] = {1e16, 1, -1e16, 1, 1};
  constexpr double kInTree = ((1e16 + 1) + (-1e16 + 1)) + 1;
  constexpr double kInARow = (((1e16 + 1) - 1e16) + 1) + 1;
  static_assert(kInTree == 1 && kInARow == 2);
  test::on_ranks({1, 2, 3, 4}, [&](ProcessGroup& world) {
    RunningValues running(/*momentum=*/1);
    const at::Tensor mean = at::zeros({1}), variance = at::ones({1});
    const int layer = running.add(mean, variance);
    const int each = (kLeaves + world.size() - 1) / world.size();
    for (int leaf = 0; leaf < kLeaves; ++leaf) {
      if (leaf / each != world.rank()) continue;
      running.see(layer, leaf, 0,
                  {.count = 2,
                   .mean = at::full({1}, kMeans[leaf], at::kDouble),
                   .m2 = at::ones({1}, at::kDouble)});
    }
    running.update(world, kLeaves);
    EXPECT_FLOAT_EQ(mean.item<float>(), static_cast<float>(kInTree / kLeaves));
    world.barrier();
  });
}

/// Algorithm 2 of the paper, in plain arithmetic.
TEST(RunningValues, FollowTheFormula) {
  test::on_ranks({1}, [&](ProcessGroup& world) {
    const Values found = run(world, [](int) { return true; });
    for (int64_t channel = 0; channel < 8; ++channel) {
      double mean = 0, variance = 0;
      for (int leaf = 0; leaf < kLeaves; ++leaf) {
        for (int micro = 0; micro < kMicros; ++micro) {
          const at::Tensor x = batch_of(leaf, micro).select(1, channel).to(at::kDouble);
          mean += x.mean().item<double>() / (kLeaves * kMicros);
          variance += x.var(/*unbiased=*/true).item<double>() / (kLeaves * kMicros);
        }
      }
      double running_mean = 0, running_variance = 1;
      for (int step = 0; step < 3; ++step) {
        running_mean += 0.1 * (mean - running_mean);
        running_variance += 0.1 * (variance - running_variance);
      }
      EXPECT_NEAR(found.mean[channel].item<double>(), running_mean, 1e-6);
      EXPECT_NEAR(found.variance[channel].item<double>(), running_variance, 1e-6);
    }
  });
}

TEST(RunningValues, AStepThatDoesNotCountLeavesNothing) {
  test::on_ranks({1}, [&](ProcessGroup& world) {
    NormShare share;
    const at::Tensor mean = at::zeros({1}), variance = at::ones({1});
    const int layer = share.running.add(mean, variance);
    const auto see = [&](double value) {
      share.running.see(layer, 0, 0,
                        {.count = 2,
                         .mean = at::full({1}, value, at::kDouble),
                         .m2 = at::full({1}, 1.0, at::kDouble)});
    };
    see(1e30);
    share.running.forget();
    see(1);
    share.running.update(world, 1);
    EXPECT_FLOAT_EQ(mean.item<float>(), 0.1f);
    EXPECT_FLOAT_EQ(variance.item<float>(), 1);
  });
}

TEST(RunningValues, CardHolds) {
  test::on_ranks({2, 4}, [&](ProcessGroup& world) {
    RunningValues running(0.1);
    const int layer = running.add(at::zeros({11}), at::ones({11}));
    running.see(
        layer, world.rank(), 0,
        {.count = 2, .mean = at::zeros({11}, at::kDouble), .m2 = at::ones({11}, at::kDouble)});
    world.barrier();
    world.reset_totals();
    running.update(world, world.size());
    // With the count of micro-batches; so few that each rank reads the others' at once.
    EXPECT_EQ(world.totals().bytes, (world.size() - 1) * (2 * 11 + 1) * 8);
    world.barrier();
  });
}

TEST(ChannelNorm, GroupAndLayerAreTheirOperators) {
  const at::NoGradGuard no_grad;
  const at::Tensor x = batch_of(0, 0);
  const RankContext context;
  for (const NormKind kind : {NormKind::group, NormKind::layer}) {
    ChannelNorm norm(kind, 16, std::make_shared<NormShare>());
    norm.weight.fill_(1.5);
    norm.bias.fill_(0.25);
    const at::Tensor wide = at::empty({3, 16, 2, 2}).copy_(x.repeat({1, 2, 1, 1}));
    const int64_t groups = kind == NormKind::group ? 2 : 1;
    const at::Tensor rows = wide.view({3, groups, -1});
    const at::Tensor expected =
        ((rows - rows.mean(2, true)) / (rows.var(2, false, true) + 1e-5).sqrt()).view_as(wide) *
            1.5 +
        0.25;
    EXPECT_LE((norm.forward(wide, context) - expected).abs().max().item<double>(), 1e-5);
    EXPECT_TRUE(norm.buffers().empty());
  }
}

TEST(ChannelNorm, RefusesWhatDoesNotFit) {
  EXPECT_THROW(ChannelNorm(NormKind::group, 12, std::make_shared<NormShare>()), UsageError);
  EXPECT_THROW(norm_kind_of("batches"), UsageError);
  ChannelNorm sync(NormKind::sync, 8, std::make_shared<NormShare>());
  EXPECT_THROW(sync.forward(batch_of(0, 0), {}), UsageError);  // no group
  ChannelNorm batch(NormKind::batch, 8, std::make_shared<NormShare>());
  EXPECT_THROW(batch.forward(at::ones({1, 8, 1, 1}), {}), UsageError);  // one number a channel
}

}  // namespace
}  // namespace lockstep::parallel
