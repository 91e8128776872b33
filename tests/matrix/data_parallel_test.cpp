// The equality matrix for data parallelism: whole replicas against one process, over accumulation,
// sizes of parameters, tied, unused and frozen ones, first and later steps, 1 to 4 ranks.
//
// Two ways to train, two promises. The stores and the step program end with the bits of one rank.
// DistributedDataParallel ends with equal replicas whose gradient is that of one process within the
// rounding of another order of additions.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <mutex>

#include "lockstep/base/counter_random.h"
#include "lockstep/train/distributed_data_parallel.h"
#include "lockstep/train/step_runner.h"
#include "tests/train/ranks.h"

namespace lockstep {
namespace {

using test::World;

constexpr int64_t kRows = 3;  // samples of a micro-batch
constexpr int64_t kWidth = 8;
constexpr int64_t kPrime = 97;  // elements of a parameter that nothing divides
constexpr int kSteps = 3;

/// One parameter of each awkward kind.
struct Net : torch::nn::Module {
  Net() {
    table = register_parameter("table", torch::zeros({kWidth, kWidth}));  // 64 elements
    head = register_parameter("head", torch::zeros({kWidth, kWidth}));    // tied to table
    prime = register_parameter("prime", torch::zeros({kPrime}));
    one = register_parameter("one", torch::zeros({1}));
    scalar = register_parameter("scalar", torch::zeros({}));
    empty = register_parameter("empty", torch::zeros({0, 4}));
    unused = register_parameter("unused", torch::zeros({5}));
    sometimes = register_parameter("sometimes", torch::zeros({6}));
    frozen = register_parameter("frozen", torch::zeros({kWidth}), /*requires_grad=*/false);
  }

  /// The loss of each row. `tied`: head stands for table.
  torch::Tensor forward(const torch::Tensor& x, bool use_sometimes) {
    const torch::Tensor h = torch::tanh(torch::mm(x, table) + frozen) * one + scalar;
    torch::Tensor loss = torch::mm(h, head.t()).square().sum(1);
    loss = loss + (x.sum(1, true) * prime).square().sum(1) + empty.sum();
    return use_sometimes ? loss + (sometimes * x.sum()).sum() : loss;
  }
  torch::Tensor table, head, prime, one, scalar, empty, unused, sometimes, frozen;
};

torch::Tensor values(const std::string& name, int64_t index, at::IntArrayRef shape) {
  torch::Tensor x = torch::empty(shape);
  const base::RandomKey key = base::RandomKey(21).with(name).with(static_cast<uint64_t>(index));
  for (int64_t i = 0; i < x.numel(); ++i) {
    x.data_ptr<float>()[i] = static_cast<float>(0.3 * key.normal(static_cast<uint64_t>(i)));
  }
  return x;
}

/// The rows of micro-batch number `index` of a step.
torch::Tensor rows(int step, int64_t index) {
  return values("rows", step * 1000 + index, {kRows, kWidth});
}

/// Used by every other micro-batch of later steps: by some ranks and not by others.
bool use_sometimes(int step, int64_t index) { return step > 0 && index % 2 == 1; }

// ---- the stores and the step program ----

/// Digest of the parameters and the norm of the last step, after kSteps of plain SGD.
struct Bits {
  std::string digest;
  double grad_norm = 0;
  double loss = 0;
  bool operator==(const Bits&) const = default;
};

std::vector<Bits> train_with_stores(int ranks, int grains, int accumulation, bool tied,
                                    int64_t bucket_bytes) {
  std::vector<Bits> results(static_cast<size_t>(ranks));
  test::on_worlds({ranks}, [&](const World& world) {
    Net net;
    const std::vector<plan::Tie> ties =
        tied ? std::vector<plan::Tie>{{.use = "head", .of = "table"}} : std::vector<plan::Tie>{};
    state::ParamStore params(
        net, ties,
        [](const std::string&) { return plan::Init{.kind = plan::Init::Kind::normal, .std = 0.3}; },
        {.seed = 4, .first_bucket_bytes = bucket_bytes, .bucket_bytes = bucket_bytes});
    plan::StepInputs inputs;
    inputs.batch = plan::plan_batch(kRows * grains * accumulation, kRows, grains);
    inputs.leaves = plan::plan_leaves(grains, ranks, plan::LeafAssignment::contiguous);
    inputs.table = params.table();
    inputs.buckets = params.buckets();
    state::GradStore grads(params, *world, inputs.leaves, accumulation);
    StepRunner runner(inputs, params, grads, {.dp = *world});
    Bits bits;
    for (int step = 0; step < kSteps; ++step) {
      StepCompute compute;
      compute.forward = [&](const plan::Step& at, const at::Tensor&) {
        const int64_t index = at.leaf * accumulation + at.micro;
        return net.forward(rows(step, index), use_sometimes(step, index));
      };
      compute.update = [&](double) {
        for (size_t p = 0; p < params.table().params.size(); ++p) {
          if (!params.table().params[p].trainable) continue;
          float* master = params.master(static_cast<int>(p));
          const float* gradient = grads.gradient(static_cast<int>(p));
          for (int64_t i = 0; i < params.table().params[p].numel; ++i) {
            master[i] -= 0.05f * gradient[i];
          }
        }
      };
      const StepResult result =
          runner.run(compute, 1.0 / static_cast<double>(inputs.batch.global_batch));
      bits.grad_norm = result.grad_norm;
      bits.loss = result.loss_sum;
    }
    bits.digest = params.digest().text();
    results[static_cast<size_t>(world->rank())] = bits;
  });
  return results;
}

class Matrix : public ::testing::TestWithParam<std::tuple<int, int, bool>> {};

TEST_P(Matrix, StoresEndWithTheBitsOfOneRank) {
  const auto [ranks, accumulation, tied] = GetParam();
  for (const int grains : {4, 5}) {
    const Bits alone = train_with_stores(1, grains, accumulation, tied, 1 * MiB)[0];
    ASSERT_TRUE(std::isfinite(alone.grad_norm) && alone.grad_norm > 0);
    for (const int64_t bucket_bytes : {int64_t{64}, int64_t{300}, int64_t{1 * MiB}}) {
      for (const Bits& bits : train_with_stores(ranks, grains, accumulation, tied, bucket_bytes)) {
        EXPECT_EQ(bits.digest, alone.digest) << grains << " leaves, buckets of " << bucket_bytes;
        EXPECT_EQ(bits.grad_norm, alone.grad_norm);
        EXPECT_EQ(bits.loss, alone.loss);
      }
    }
  }
}

// ---- DistributedDataParallel ----

TEST_P(Matrix, DdpIsOneProcessWithinRounding) {
  const auto [ranks, accumulation, tied] = GetParam();
  for (const int64_t bucket_bytes : {int64_t{64}, int64_t{1 * MiB}}) {
    test::on_worlds({ranks}, [&, accumulation = accumulation, tied = tied](const World& world) {
      const auto make = [tied] {
        auto net = std::make_shared<Net>();
        const torch::NoGradGuard no_grad;
        for (auto& p : net->named_parameters())
          p.value().copy_(values(p.key(), 0, p.value().sizes()));
        if (tied) net->head = net->table;
        return net;
      };
      const auto net = make();
      const auto alone = make();
      // The tied net's own head takes no part, as "unused" never does.
      DistributedDataParallel ddp(net, world,
                                  {.unused = UnusedParameters::zero,
                                   .bucket_bytes = bucket_bytes,
                                   .first_bucket_bytes = bucket_bytes});
      torch::optim::SGD sgd(net->parameters(), 0.05);
      const double terms = static_cast<double>(world->size() * accumulation);

      for (int step = 0; step < kSteps; ++step) {
        // The reference starts each step where the replicas are: what is compared is one gradient.
        {
          const torch::NoGradGuard no_grad;
          const auto from = net->parameters();
          auto to = alone->parameters();
          for (size_t p = 0; p < from.size(); ++p) to[p].copy_(from[p]);
        }
        std::vector<torch::Tensor> sum, magnitude;
        for (const auto& p : alone->parameters()) {
          sum.push_back(torch::zeros_like(p, torch::kDouble));
          magnitude.push_back(torch::zeros_like(p, torch::kDouble));
        }
        for (int64_t index = 0; index < world->size() * accumulation; ++index) {
          for (auto& p : alone->parameters()) p.mutable_grad() = torch::Tensor();
          alone->forward(rows(step, index), use_sometimes(step, index)).sum().backward();
          const auto parameters = alone->parameters();
          for (size_t p = 0; p < parameters.size(); ++p) {
            if (!parameters[p].grad().defined()) continue;
            sum[p] += parameters[p].grad().to(torch::kDouble);
            magnitude[p] += parameters[p].grad().to(torch::kDouble).abs();
          }
        }

        ddp.zero_grad();
        for (int k = 0; k < accumulation; ++k) {
          const int64_t index = world->rank() * accumulation + k;
          const torch::Tensor loss =
              net->forward(rows(step, index), use_sometimes(step, index)).sum();
          if (k + 1 < accumulation) {
            const auto local = ddp.no_sync();
            ddp.backward(loss);
          } else {
            ddp.backward(loss);
          }
        }

        const auto named = net->named_parameters();
        for (size_t p = 0; p < named.size(); ++p) {
          const torch::Tensor& parameter = named[p].value();
          if (!parameter.requires_grad() || parameter.numel() == 0) continue;
          // Micro-batches give the same bits here and there. What differs is the order in which
          // `terms` of them are added, and one division.
          const torch::Tensor bound =
              magnitude[p] / world->size() * ((1 + terms) * std::ldexp(1.0, -24)) + 1e-30;
          const torch::Tensor off =
              (parameter.grad().to(torch::kDouble) - sum[p] / world->size()).abs();
          EXPECT_TRUE(off.le(bound).all().item<bool>())
              << named[p].key() << " in step " << step << ": off by " << off.max().item<double>()
              << ", bound " << bound.max().item<double>();
        }
        EXPECT_EQ(net->unused.grad().abs().sum().item<double>(), 0.0);
        sgd.step();
        ddp.verify_replicas();
      }
      EXPECT_EQ(ddp.reductions() % kSteps, 0);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(DataParallel, Matrix,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4),
                                            ::testing::Values(1, 2, 3), ::testing::Bool()),
                         [](const auto& info) {
                           return base::str(std::get<0>(info.param), "ranks_",
                                            std::get<1>(info.param), "parts_",
                                            std::get<2>(info.param) ? "tied" : "untied");
                         });

/// The control: a matrix that cannot fail proves nothing. Only the first micro-batch reduced.
TEST(MatrixControl, AForgottenMicroBatchIsSeen) {
  const Bits whole = train_with_stores(1, 4, 2, false, 1 * MiB)[0];
  const Bits first_only = train_with_stores(1, 4, 1, false, 1 * MiB)[0];
  EXPECT_NE(whole.digest, first_only.digest);
  EXPECT_NE(whole.grad_norm, first_only.grad_norm);
}

}  // namespace
}  // namespace lockstep
