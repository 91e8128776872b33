// A model and a dataset of one's own inside `lockstep train`: the Trainer's steps, logs, metrics,
// faults and same bits, for what is not Lockstep's.
//
//   build/bin/lockstep train examples/own_task.toml -n 3
//
// Spirals says what is trained; main is the whole program.

#include <cmath>

#include <torch/torch.h>

#include "lockstep/lockstep.h"

/// Tells two spirals apart. Points are made from their number, so every rank makes the same ones.
class Spirals final : public lockstep::Task {
 public:
  explicit Spirals(const lockstep::plan::TrainConfig& config)
      : order_{.size = 2048, .seed = static_cast<uint64_t>(config.run.seed)},
        net_(torch::nn::Linear(2, config.model.width), torch::nn::Tanh(),
             torch::nn::Linear(config.model.width, config.model.width), torch::nn::Tanh(),
             torch::nn::Linear(config.model.width, 1)) {}

  torch::nn::Module& module() override { return *net_; }
  int64_t samples() const override { return order_.size; }
  int64_t validation_samples() const override { return 256; }

  torch::Tensor losses(const lockstep::Samples& samples, const lockstep::RankContext&) override {
    return losses_of(lockstep::rows_of(order_, samples));
  }
  torch::Tensor validation_losses(int64_t first, int64_t count, int64_t,
                                  const lockstep::RankContext&) override {
    return losses_of(order_.size + torch::arange(first, first + count));
  }

 private:
  /// The loss of the points numbered `rows`, one each.
  torch::Tensor losses_of(const torch::Tensor& rows) {
    const torch::Tensor n = rows.to(torch::kDouble);
    const torch::Tensor label = rows.remainder(2).to(torch::kFloat);
    const torch::Tensor turn = (n * 0.6180339887).frac().sqrt() * 3 * M_PI;
    const torch::Tensor angle = turn + label * M_PI;
    const torch::Tensor x = torch::stack({turn * angle.cos(), turn * angle.sin()}, 1) / 10;
    return torch::binary_cross_entropy_with_logits(net_->forward(x.to(torch::kFloat)).squeeze(1),
                                                   label, {}, {}, torch::Reduction::None);
  }

  lockstep::input::SampleOrder order_;
  torch::nn::Sequential net_;
};

int main(int argc, char** argv) {
  return lockstep::worker_main(argc, argv, {{"spirals", [](const auto& config) {
                                               return std::make_shared<Spirals>(config);
                                             }}});
}
