// Batch normalisation over ranks against one process that has the whole batch.
#include "lockstep/parallel/norm/sync_batch_norm.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "lockstep/base/counter_random.h"
#include "lockstep/base/error.h"
#include "tests/comm/on_ranks.h"

namespace lockstep {
namespace {

using test::message_of;

at::Tensor drawn(at::IntArrayRef shape, const char* name, double scale = 1, double shift = 0) {
  at::Tensor x = at::empty(shape);
  const base::RandomKey key = base::RandomKey(5).with(name);
  for (int64_t i = 0; i < x.numel(); ++i) {
    x.data_ptr<float>()[i] =
        static_cast<float>(shift + scale * key.normal(static_cast<uint64_t>(i)));
  }
  return x;
}

double most_apart(const at::Tensor& a, const at::Tensor& b) {
  return a.numel() == 0 ? 0 : (a - b).abs().max().item<double>();
}

/// A norm's result and all that a backward of sum(y * factor) leaves.
struct Pass {
  at::Tensor y, of_x, of_weight, of_bias, mean, variance;
};

/// One process, by LibTorch's own operator.
Pass alone(const at::Tensor& batch, const at::Tensor& factor, const at::Tensor& gain,
           const at::Tensor& shift) {
  const at::Tensor x = batch.detach().clone().requires_grad_();
  const at::Tensor weight = gain.detach().clone().requires_grad_();
  const at::Tensor bias = shift.detach().clone().requires_grad_();
  const at::Tensor mean = at::zeros_like(gain), variance = at::ones_like(gain);
  const at::Tensor y =
      at::batch_norm(x, weight, bias, mean, variance, /*training=*/true, 0.1, 1e-5, false);
  (y * factor).sum().backward();
  return {y.detach(), x.grad(), weight.grad(), bias.grad(), mean, variance};
}

Pass of_rank(const std::shared_ptr<ProcessGroup>& group, const at::Tensor& part,
             const at::Tensor& factor, const at::Tensor& gain, const at::Tensor& shift) {
  SyncBatchNorm norm(gain.numel(), group);
  {
    const at::NoGradGuard no_grad;
    norm.weight.copy_(gain);
    norm.bias.copy_(shift);
  }
  const at::Tensor x = part.detach().clone().requires_grad_();
  const at::Tensor y = norm.forward(x);
  (y * factor).sum().backward();
  // As a layer below data parallelism has them: added up over ranks.
  at::Tensor of_weight = norm.weight.grad().clone(), of_bias = norm.bias.grad().clone();
  group->all_reduce(of_weight).wait();
  group->all_reduce(of_bias).wait();
  return {y.detach(), x.grad(), of_weight, of_bias, norm.running_mean, norm.running_var};
}

/// Rank r has `counts[r]` samples of a batch of pictures.
void expect_one_process(const std::vector<int64_t>& counts, double scale, double shift) {
  int64_t all = 0;
  for (const int64_t count : counts) all += count;
  const at::Tensor batch = drawn({all, 6, 3, 5}, "x", scale, shift);
  const at::Tensor factor = drawn({all, 6, 3, 5}, "factor");
  const at::Tensor gain = drawn({6}, "gain"), bias = drawn({6}, "bias");
  const Pass whole = alone(batch, factor, gain, bias);
  const auto ranks = static_cast<int>(counts.size());
  net::run_on_threads(
      ranks,
      [&](const std::shared_ptr<net::Group>& world) {
        const auto group = std::make_shared<ProcessGroup>(world);
        const auto rank = static_cast<size_t>(group->rank());
        int64_t first = 0;
        for (size_t r = 0; r < rank; ++r) first += counts[r];
        const auto mine = [&](const at::Tensor& x) { return x.narrow(0, first, counts[rank]); };
        const Pass pass = of_rank(group, mine(batch), mine(factor), gain, bias);
        EXPECT_LE(most_apart(pass.y, mine(whole.y)), 1e-6 * (1 + std::abs(shift / scale)));
        EXPECT_LE(most_apart(pass.of_x, mine(whole.of_x)), 1e-6 * (1 + std::abs(shift / scale)));
        // Sums of 15 numbers a sample of size 1: float sums of this many are that far apart.
        const double of_sums = 1e-6 * static_cast<double>(all * 15) / 10;
        EXPECT_LE(most_apart(pass.of_weight, whole.of_weight), of_sums);
        EXPECT_LE(most_apart(pass.of_bias, whole.of_bias), of_sums);
        EXPECT_LE(most_apart(pass.mean, whole.mean), 1e-6 * (1 + std::abs(shift)));
        EXPECT_LE(most_apart(pass.variance, whole.variance), 1e-6 * (1 + scale * scale));
        EXPECT_EQ(pass.y.sizes(), mine(batch).sizes());
        group->barrier();
      },
      test::options());
}

TEST(SyncBatchNorm, FourRanksAreOneProcess) { expect_one_process({4, 4, 4, 4}, 1, 0); }

TEST(SyncBatchNorm, UnevenAndEmptyBatchesAreOneProcess) {
  expect_one_process({5, 1, 3}, 1, 0);
  expect_one_process({0, 7, 2}, 1, 0);
  expect_one_process({9}, 1, 0);
}

TEST(SyncBatchNorm, AMeanFarFromZeroIsNoHarm) { expect_one_process({3, 4, 5}, 0.5, 30); }

TEST(SyncBatchNorm, SBN_1_EachNumberCountsAlike) {
  const at::Tensor all = at::arange(1, 6, at::kFloat).view({5, 1});
  const at::Tensor factor = drawn({5, 1}, "factor");
  const Pass whole = alone(all, factor, at::ones({1}), at::zeros({1}));
  net::run_on_threads(
      2,
      [&](const std::shared_ptr<net::Group>& world) {
        const auto group = std::make_shared<ProcessGroup>(world);
        const int64_t first = group->rank() == 0 ? 0 : 2, count = group->rank() == 0 ? 2 : 3;
        parallel::Moments found;
        parallel::sync_batch_norm(all.narrow(0, first, count), at::ones({1}), at::zeros({1}), 1e-5,
                                  group, &found);
        EXPECT_EQ(found.count, 5);
        EXPECT_DOUBLE_EQ(found.mean.item<double>(), 3);
        EXPECT_NEAR(found.variance().item<double>(), 2, 1e-6);
        const Pass pass = of_rank(group, all.narrow(0, first, count),
                                  factor.narrow(0, first, count), at::ones({1}), at::zeros({1}));
        EXPECT_NEAR(pass.mean.item<double>(), 0.3, 1e-6);
        EXPECT_NEAR(pass.variance.item<double>(), 1.15, 1e-6);
        EXPECT_LE(most_apart(pass.of_x, whole.of_x.narrow(0, first, count)), 1e-6);
        EXPECT_LE(most_apart(pass.of_weight, whole.of_weight), 1e-6);
        EXPECT_LE(most_apart(pass.of_bias, whole.of_bias), 1e-6);
        group->barrier();
      },
      test::options());
}

TEST(SyncBatchNorm, SBN_2_EmptyBatches) {
  net::run_on_threads(
      2,
      [&](const std::shared_ptr<net::Group>& world) {
        const auto group = std::make_shared<ProcessGroup>(world);
        const bool first = group->rank() == 0;
        SyncBatchNorm norm(1, group);
        const auto pass = [&](int64_t count) {
          const at::Tensor x = at::arange(1, count + 1, at::kFloat).view({count, 1});
          x.requires_grad_();
          const at::Tensor y = norm.forward(x);
          (y * y * x.detach()).sum().backward();
          EXPECT_EQ(y.sizes(), (std::vector<int64_t>{count, 1}));
          EXPECT_EQ(x.grad().sizes(), (std::vector<int64_t>{count, 1}));
        };
        pass(first ? 3 : 0);
        EXPECT_NEAR(norm.running_mean.item<double>(), 0.1 * 2, 1e-6);
        // Variance 2/3, of which the running one keeps that with n - 1: 1.
        EXPECT_NEAR(norm.running_var.item<double>(), 0.9 + 0.1 * 1, 1e-6);
        const at::Tensor mean = norm.running_mean.clone(), variance = norm.running_var.clone();

        norm.weight.mutable_grad() = at::Tensor();
        norm.bias.mutable_grad() = at::Tensor();
        pass(0);
        EXPECT_TRUE(mean.equal(norm.running_mean));
        EXPECT_TRUE(variance.equal(norm.running_var));
        EXPECT_EQ(norm.weight.grad().item<double>(), 0);
        EXPECT_EQ(norm.bias.grad().item<double>(), 0);

        // One rank alone: a collective would wait for the other.
        norm.eval();
        group->reset_totals();
        if (first) {
          const at::Tensor y = norm.forward(at::full({2, 1}, 0.2f));
          EXPECT_NEAR(y[0].item<double>(), 0, 1e-6);
          EXPECT_EQ(norm.forward(at::empty({0, 1})).sizes(), (std::vector<int64_t>{0, 1}));
        }
        EXPECT_EQ(group->totals().bytes, 0);
        group->barrier();
      },
      test::options());
}

TEST(SyncBatchNorm, EveryRankHasTheSameBits) {
  test::on_ranks({3}, [&](ProcessGroup& world) {
    const auto group = world.subgroup({0, 1, 2}, "norm");
    parallel::Moments found;
    parallel::sync_batch_norm(drawn({2 + world.rank(), 4}, "x"), at::ones({4}), at::zeros({4}),
                              1e-5, group, &found);
    const at::Tensor mine = at::cat({found.mean, found.m2});
    at::Tensor of_first = mine.clone();
    world.broadcast(of_first, 0).wait();
    EXPECT_TRUE(test::same_bits(mine, of_first));
    world.barrier();
  });
}

TEST(SyncBatchNorm, CardHolds) {
  test::on_ranks({2, 4}, [&](ProcessGroup& world) {
    std::vector<int> ranks(static_cast<size_t>(world.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    const auto group = world.subgroup(ranks, "norm");
    constexpr int64_t kChannels = 8;
    const int64_t others = world.size() - 1;
    const at::Tensor x = drawn({3, kChannels}, "x").requires_grad_();
    group->reset_totals();
    const at::Tensor y =
        parallel::sync_batch_norm(x, at::ones({kChannels}), at::zeros({kChannels}), 1e-5, group);
    EXPECT_EQ(group->totals().bytes, others * (2 * kChannels + 1) * 8);
    world.barrier();
    group->reset_totals();
    y.sum().backward();
    EXPECT_EQ(group->totals().bytes, others * 2 * kChannels * 8);
    world.barrier();
  });
}

TEST(SyncBatchNorm, RefusesWhatHasNoMeaning) {
  test::on_ranks({2}, [&](ProcessGroup& world) {
    const auto group = world.subgroup({0, 1}, "norm");
    // One number a channel, and no more anywhere: both ranks hear of it.
    const at::Tensor x = world.rank() == 0 ? at::ones({1, 2}) : at::ones({0, 2});
    EXPECT_THROW(SyncBatchNorm(2, group).forward(x), UsageError);
    EXPECT_NE(
        message_of<UsageError>([&] { SyncBatchNorm(3, group).forward(x); }).find("3 channels"),
        std::string::npos);
    EXPECT_THROW(SyncBatchNorm(0, group), UsageError);
    EXPECT_THROW(SyncBatchNorm(2, nullptr), UsageError);
    EXPECT_THROW(SyncBatchNorm(2, group, {.eps = 0}), UsageError);
    EXPECT_THROW(SyncBatchNorm(2, group, {.momentum = 1.5}), UsageError);
    world.barrier();
  });
}

}  // namespace
}  // namespace lockstep
