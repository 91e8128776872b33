/// The optimizers there are, each with the options that it reads and no others.
#pragma once

#include <memory>
#include <variant>
#include <vector>

#include "lockstep/optim/adamw.h"
#include "lockstep/optim/lamb.h"
#include "lockstep/optim/lars.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/plan/optimizers.h"
#include "lockstep/plan/train_config.h"

namespace lockstep::optim {

/// In the order of plan::Optimizer.
using OptimizerOptions = std::variant<AdamWOptions, SgdOptions, LarsOptions, LambOptions>;

inline plan::Optimizer kind_of(const OptimizerOptions& options) {
  return static_cast<plan::Optimizer>(options.index());
}

/// Those of a run.
OptimizerOptions options_of(const plan::TrainConfig& config);

/// Throws UsageError naming field and value.
std::unique_ptr<Updater> make_updater(const OptimizerOptions& options, std::vector<Span> spans);

}  // namespace lockstep::optim
