// A loop of one's own with SyncBatchNorm under DistributedDataParallel against one process.
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "lockstep/base/counter_random.h"
#include "lockstep/parallel/norm/sync_batch_norm.h"
#include "lockstep/train/distributed_data_parallel.h"
#include "tests/train/ranks.h"

namespace lockstep {
namespace {

using test::on_worlds;
using test::World;

constexpr int64_t kBatch = 12, kIn = 5, kOut = 4;
constexpr int kSteps = 5;
constexpr double kRate = 0.1;

at::Tensor drawn(at::IntArrayRef shape, const char* name, int step) {
  at::Tensor x = at::empty(shape);
  const auto key = base::RandomKey(2).with(name).with(static_cast<uint64_t>(step));
  for (int64_t i = 0; i < x.numel(); ++i) {
    x.data_ptr<float>()[i] = static_cast<float>(key.normal(static_cast<uint64_t>(i)));
  }
  return x;
}

struct Net : torch::nn::Module {
  explicit Net(const World& world) {
    weight = register_parameter("weight", drawn({kOut, kIn}, "weight", 0));
    norm = register_module("norm", std::make_shared<SyncBatchNorm>(kOut, world));
  }
  at::Tensor forward(const at::Tensor& x) { return norm->forward(at::linear(x, weight)); }
  at::Tensor weight;
  std::shared_ptr<SyncBatchNorm> norm;
};

at::Tensor loss_of(const at::Tensor& y, const at::Tensor& factor) {
  return (y * factor + y * y * y).mean();
}

void descend(const std::vector<at::Tensor>& parameters) {
  const at::NoGradGuard no_grad;
  for (at::Tensor parameter : parameters) {
    parameter.sub_(parameter.grad(), kRate);
    parameter.mutable_grad() = at::Tensor();
  }
}

/// weight, gain, shift, running mean and variance after the steps.
std::vector<at::Tensor> alone() {
  const at::Tensor weight = drawn({kOut, kIn}, "weight", 0).requires_grad_();
  const at::Tensor gain = at::ones({kOut}).requires_grad_();
  const at::Tensor shift = at::zeros({kOut}).requires_grad_();
  const at::Tensor mean = at::zeros({kOut}), variance = at::ones({kOut});
  for (int step = 0; step < kSteps; ++step) {
    const at::Tensor y = at::batch_norm(at::linear(drawn({kBatch, kIn}, "x", step), weight), gain,
                                        shift, mean, variance, true, 0.1, 1e-5, false);
    loss_of(y, drawn({kBatch, kOut}, "factor", step)).backward();
    descend({weight, gain, shift});
  }
  return {weight.detach(), gain.detach(), shift.detach(), mean, variance};
}

TEST(SynchronousNorm, UnderDataParallelismIsOneProcess) {
  const std::vector<at::Tensor> expected = alone();
  on_worlds({1, 2, 3, 4}, [&](const World& world) {
    const auto net = std::make_shared<Net>(world);
    DistributedDataParallel ddp(net, world);
    const int64_t each = kBatch / world->size();
    const auto mine = [&](const at::Tensor& x) { return x.narrow(0, each * world->rank(), each); };
    for (int step = 0; step < kSteps; ++step) {
      ddp.backward(loss_of(net->forward(mine(drawn({kBatch, kIn}, "x", step))),
                           mine(drawn({kBatch, kOut}, "factor", step))));
      const at::NoGradGuard no_grad;
      for (at::Tensor parameter : net->parameters()) parameter.sub_(parameter.grad(), kRate);
      ddp.zero_grad();
    }
    ddp.verify_replicas();
    const std::vector<at::Tensor> got = {net->weight, net->norm->weight, net->norm->bias,
                                         net->norm->running_mean, net->norm->running_var};
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_LE((got[i] - expected[i]).abs().max().item<double>(), 2e-6 * kSteps) << i;
    }
  });
}

}  // namespace
}  // namespace lockstep
