/// The time of a step, cut into its parts without gap or overlap: entering a part ends the time of
/// the one around it until the part is left. What runs inside backward (folds) is not counted
/// twice.
#pragma once

#include <chrono>
#include <utility>

#include "lockstep/torch_inside/layer_scope.h"
#include "lockstep/train/step_report.h"

namespace lockstep {

class PhaseClock {
 public:
  using Phase = torch_inside::Phase;

  /// A new step begins, in no part yet.
  void start() {
    seconds_ = {};
    now_ = Phase::other;
    since_ = Clock::now();
  }

  /// Returns the part that was under way, to go back to.
  Phase enter(Phase phase) {
    const Clock::time_point now = Clock::now();
    seconds_[static_cast<size_t>(now_)] += std::chrono::duration<double>(now - since_).count();
    since_ = now;
    return std::exchange(now_, phase);
  }

  /// Up to now; their sum is the time since start().
  const PhaseSeconds& read() {
    enter(now_);
    return seconds_;
  }

 private:
  using Clock = std::chrono::steady_clock;

  PhaseSeconds seconds_{};
  Phase now_ = Phase::other;
  Clock::time_point since_ = Clock::now();
};

/// While it lives, the clock and the profile (if one is on) count this part.
class PhaseSpan {
 public:
  PhaseSpan(PhaseClock& clock, PhaseClock::Phase phase)
      : scope_(phase), clock_(clock), before_(clock.enter(phase)) {}
  ~PhaseSpan() { clock_.enter(before_); }
  PhaseSpan(const PhaseSpan&) = delete;
  PhaseSpan& operator=(const PhaseSpan&) = delete;

 private:
  torch_inside::PhaseScope scope_;
  PhaseClock& clock_;
  PhaseClock::Phase before_;
};

}  // namespace lockstep
