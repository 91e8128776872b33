// 03: several micro-batches a step, one reduction.
//
//   lockstep run -n 2 -- build/bin/03_accumulation
//
// A batch that does not fit into memory is taken in parts. Gradients of all parts but the last stay
// on their rank (`no_sync`); the last backward reduces their sum. The same step taken whole, and
// taken with a reduction after every part, end at the same gradient; the bytes that moved differ.

#include <iostream>

#include <torch/torch.h>

#include "lockstep/lockstep.h"

namespace {

constexpr int kParts = 4;
constexpr int64_t kSamples = 32;  // of each rank

struct Outcome {
  torch::Tensor gradient;
  int64_t bytes;
};

Outcome measure(const lockstep::World& world, const std::function<void()>& step,
                const torch::Tensor& weight) {
  world->reset_totals();
  step();
  return {weight.grad().clone(), world->totals().bytes};
}

}  // namespace

int main(int argc, char** argv) {
  const lockstep::World world = lockstep::init(argc, argv);
  torch::nn::Sequential net(torch::nn::Linear(256, 512), torch::nn::ReLU(),
                            torch::nn::Linear(512, 10));
  lockstep::DistributedDataParallel ddp(net, world);
  const torch::Tensor weight = net->parameters()[0];

  torch::manual_seed(100 + world.rank());  // each rank its own data
  const torch::Tensor x = torch::randn({kSamples, 256});
  const torch::Tensor y = torch::randint(10, {kSamples});
  const auto loss_of = [&](int64_t from, int64_t count) {
    const torch::Tensor logits = net->forward(x.narrow(0, from, count));
    // A sum over the part, divided by the samples of the whole: parts add up.
    return torch::nll_loss(logits.log_softmax(1), y.narrow(0, from, count), {},
                           torch::Reduction::Sum) /
           kSamples;
  };
  const int64_t part = kSamples / kParts;

  const Outcome whole = measure(
      world,
      [&] {
        ddp.zero_grad();
        ddp.backward(loss_of(0, kSamples));
      },
      weight);

  const Outcome eager = measure(
      world,
      [&] {
        ddp.zero_grad();
        for (int p = 0; p < kParts; ++p) ddp.backward(loss_of(p * part, part));
      },
      weight);

  const Outcome accumulated = measure(
      world,
      [&] {
        ddp.zero_grad();
        {
          const auto local = ddp.no_sync();
          for (int p = 0; p + 1 < kParts; ++p) ddp.backward(loss_of(p * part, part));
        }
        ddp.backward(loss_of((kParts - 1) * part, part));
      },
      weight);

  const double off = (accumulated.gradient - whole.gradient).abs().max().item<double>();
  const double off_eager = (eager.gradient - whole.gradient).abs().max().item<double>();
  ddp.verify_replicas();
  if (world.rank() == 0) {
    std::cout << "in one part       " << whole.bytes << " bytes\n"
              << "in " << kParts << ", each reduced " << eager.bytes << " bytes, gradient off by "
              << off_eager << "\n"
              << "in " << kParts << ", no_sync     " << accumulated.bytes
              << " bytes, gradient off by " << off << "\n"
              << "gradients are equal on all ranks\n";
  }
  const bool alone = world.size() == 1;
  const bool saved = alone || eager.bytes > 3 * accumulated.bytes;
  return saved && off < 1e-5 && off_eager < 1e-5 ? 0 : 1;
}
