#include "lockstep/optim/optimizer.h"

#include <utility>

namespace lockstep::optim {
namespace {

std::unique_ptr<Updater> make(const AdamWOptions& options, std::vector<Span> spans) {
  return std::make_unique<AdamW>(options, std::move(spans));
}
std::unique_ptr<Updater> make(const SgdOptions& options, std::vector<Span> spans) {
  return std::make_unique<Sgd>(options, std::move(spans));
}
std::unique_ptr<Updater> make(const LarsOptions& options, std::vector<Span> spans) {
  return std::make_unique<Lars>(options, std::move(spans));
}
std::unique_ptr<Updater> make(const LambOptions& options, std::vector<Span> spans) {
  return std::make_unique<Lamb>(options, std::move(spans));
}

}  // namespace

OptimizerOptions options_of(const plan::TrainConfig& config) {
  const auto& optim = config.optim;
  switch (plan::parse_optimizer(optim.name)) {
    case plan::Optimizer::sgd:
      return SgdOptions{.momentum = optim.momentum, .weight_decay = optim.weight_decay};
    case plan::Optimizer::lars:
      return LarsOptions{
          .momentum = optim.momentum, .weight_decay = optim.weight_decay, .trust = optim.trust};
    case plan::Optimizer::lamb:
      return LambOptions{.beta1 = optim.beta1,
                         .beta2 = optim.beta2,
                         .eps = optim.eps,
                         .weight_decay = optim.weight_decay};
    case plan::Optimizer::adamw:
      break;
  }
  return AdamWOptions{.beta1 = optim.beta1,
                      .beta2 = optim.beta2,
                      .eps = optim.eps,
                      .weight_decay = optim.weight_decay};
}

std::unique_ptr<Updater> make_updater(const OptimizerOptions& options, std::vector<Span> spans) {
  return std::visit([&](const auto& chosen) { return make(chosen, std::move(spans)); }, options);
}

}  // namespace lockstep::optim
