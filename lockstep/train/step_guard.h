/// What a run does with a step whose loss or gradient is no number, or whose loss leaps: the step
/// is taken, or left out, or the run goes back to a copy of its state, or it stops.
///
///   loss is no number                        run.on_nan
///   loss is, the gradient's norm is not      the loss scale is halved and the step left out; where
///                                            there is no scale to halve: run.on_nan
///   loss > spike_factor x mean of the last   run.on_spike
///   kSpikeWindow losses of steps taken
///
/// It sees loss and norm alone, which have the same bits on all ranks: every rank decides alike,
/// without a word to the others.
///
/// Source  Chowdhery et al. 2022, arXiv:2204.02311, section 5.1 (to go back and on past the samples
///         of a spike);  docs/concepts/bad_steps.md
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include <nlohmann/json.hpp>

#include "lockstep/plan/train_config.h"
#include "lockstep/precision/loss_scaler.h"

namespace lockstep {

enum class Verdict { take, skip, rewind, stop };

/// Losses that a leap is measured against, and how many there must be.
inline constexpr size_t kSpikeWindow = 20;
inline constexpr size_t kFewestLosses = 10;
/// Bad steps in a row, and returns to one copy: after them nothing is gained by more.
inline constexpr int kMostInARow = 10;
inline constexpr int kMostRewinds = 3;

class StepGuard {
 public:
  explicit StepGuard(const plan::TrainConfig& config = {});

  const precision::LossScaler& scaler() const { return scaler_; }
  double loss_scale() const { return scaler_.scale(); }
  /// Steps may be left out by going back, so there must be copies.
  bool rewinds() const;

  /// What becomes of a step with this mean loss and this norm of the gradients themselves.
  Verdict judge(double loss, double grad_norm);
  /// Why the last step was not taken: "gradient norm is not finite; loss scale is now 32768".
  const std::string& reason() const { return reason_; }
  /// A new copy was made: returns to it are counted from 0.
  void copied() { rewinds_to_copy_ = 0; }

  /// Steps that were computed and not taken, and how often the run went back.
  int64_t skipped() const { return skipped_; }
  int64_t rewound() const { return rewound_; }

  /// All that later verdicts depend on, for a checkpoint, and back. Throws StateError.
  nlohmann::json state() const;
  void restore(const nlohmann::json& state);

 private:
  double mean_loss() const;
  Verdict bad(Verdict policy, const std::string& what);

  precision::LossScaler scaler_;
  Verdict on_nan_;
  Verdict on_spike_;  // take: nothing is done about leaps
  double spike_factor_;
  std::deque<double> losses_;  // of the last steps taken
  int in_a_row_ = 0;           // bad steps, those apart that the loss scale explains
  int rewinds_to_copy_ = 0;
  int64_t skipped_ = 0;
  int64_t rewound_ = 0;
  std::string reason_;
};

}  // namespace lockstep
