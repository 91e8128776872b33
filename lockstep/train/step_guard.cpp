#include "lockstep/train/step_guard.h"

#include <cmath>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/number_text.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"

namespace lockstep {
namespace {

Verdict verdict_of(const std::string& policy) {
  if (policy == "stop") return Verdict::stop;
  if (policy == "skip") return Verdict::skip;
  return policy == "rewind" ? Verdict::rewind : Verdict::take;
}

}  // namespace

StepGuard::StepGuard(const plan::TrainConfig& config)
    : scaler_(precision::scaler_options_of(config)),
      on_nan_(verdict_of(config.run.on_nan)),
      on_spike_(verdict_of(config.run.on_spike)),
      spike_factor_(config.run.spike_factor) {}

bool StepGuard::rewinds() const {
  return on_nan_ == Verdict::rewind || on_spike_ == Verdict::rewind;
}

double StepGuard::mean_loss() const {
  return std::accumulate(losses_.begin(), losses_.end(), 0.0) / static_cast<double>(losses_.size());
}

Verdict StepGuard::judge(double loss, double grad_norm) {
  reason_.clear();
  if (!std::isfinite(loss)) return bad(on_nan_, "the loss is not finite");
  if (!std::isfinite(grad_norm)) {
    if (!scaler_.overflow()) return bad(on_nan_, "the gradient norm is not finite");
    ++skipped_;
    reason_ = base::str("the gradient norm is not finite; the loss scale is now ",
                        base::with_commas(static_cast<int64_t>(scaler_.scale())));
    return Verdict::skip;
  }
  scaler_.clean();
  if (on_spike_ != Verdict::take && losses_.size() >= kFewestLosses &&
      loss > spike_factor_ * mean_loss()) {
    return bad(on_spike_,
               base::str("the loss ", base::fixed_text(loss, 4), " is more than ", spike_factor_,
                         " times the mean ", base::fixed_text(mean_loss(), 4), " of late steps"));
  }
  in_a_row_ = 0;
  losses_.push_back(loss);
  if (losses_.size() > kSpikeWindow) losses_.pop_front();
  return Verdict::take;
}

Verdict StepGuard::bad(Verdict policy, const std::string& what) {
  reason_ = what;
  ++skipped_;
  if (++in_a_row_ > kMostInARow) {
    reason_ += base::str(", and so were the ", kMostInARow, " steps before it");
    return Verdict::stop;
  }
  if (policy != Verdict::rewind) return policy;
  if (++rewinds_to_copy_ > kMostRewinds) {
    reason_ += base::str(", after the run went back to the same copy ", kMostRewinds, " times");
    return Verdict::stop;
  }
  ++rewound_;
  return Verdict::rewind;
}

nlohmann::json StepGuard::state() const {
  return {{"loss_scaler", scaler_.state()},      {"losses", losses_},   {"in_a_row", in_a_row_},
          {"rewinds_to_copy", rewinds_to_copy_}, {"skipped", skipped_}, {"rewound", rewound_}};
}

void StepGuard::restore(const nlohmann::json& state) {
  StepGuard found = *this;
  try {
    found.scaler_.restore(state.at("loss_scaler"));
    found.losses_ = state.at("losses").get<std::deque<double>>();
    found.in_a_row_ = state.at("in_a_row").get<int>();
    found.rewinds_to_copy_ = state.at("rewinds_to_copy").get<int>();
    found.skipped_ = state.at("skipped").get<int64_t>();
    found.rewound_ = state.at("rewound").get<int64_t>();
  } catch (const nlohmann::json::exception& error) {
    throw StateError(base::str("this is no state of a step guard: ", error.what()));
  }
  *this = found;
}

}  // namespace lockstep
