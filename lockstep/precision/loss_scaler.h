/// The loss scale: gradients of 16 bits that would vanish below their smallest number are computed
/// many times as large, and divided again when they are whole, in fp32.
///
///   step fine            clean + 1; at growth_steps: scale x 2, clean = 0
///   gradient overflowed  clean = 0, overflows + 1; at hysteresis: scale / 2, overflows = 0
///
/// A scale is a power of two, so multiplying and dividing by it is exact: without underflow and
/// overflow a run has the bits of one without a scale. Every rank has the same scale without a word
/// to the others, since the norm that tells of an overflow is one number that all of them have.
///
/// Source  Micikevicius et al. 2018, arXiv:1710.03740, section 3.2;  docs/concepts/loss_scaling.md
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "lockstep/plan/train_config.h"

namespace lockstep::precision {

/// A scale does not grow above it.
inline constexpr double kLargestScale = 16'777'216;

/// Scales are powers of two, from 1 on.
bool is_scale(double number);

struct LossScalerOptions {
  bool dynamic = false;  // else the scale stays `first`
  double first = 1;
  double min = 1;
  int64_t growth_steps = 2'000;
  int64_t hysteresis = 1;  // overflows under one scale before it is halved
};

class LossScaler {
 public:
  /// Without a scale: 1.
  LossScaler() : LossScaler(LossScalerOptions{}) {}
  /// Throws UsageError naming field and value: a scale that is none, min above first, a count
  /// below 1.
  explicit LossScaler(const LossScalerOptions& options);

  double scale() const { return scale_; }
  /// Of a norm of scaled gradients: the gradients' own.
  double unscaled(double norm) const { return norm / scale_; }

  /// A step had finite gradients.
  void clean();
  /// A step's gradients overflowed, and it was not taken. False: the scale can do nothing about
  /// it, being fixed or as small as it may be.
  [[nodiscard]] bool overflow();

  /// Steps that overflowed since the start of the run.
  int64_t overflows() const { return overflows_; }

  /// All that the next steps depend on, for a checkpoint, and back. Throws StateError: it is no
  /// scaler's state.
  nlohmann::json state() const;
  void restore(const nlohmann::json& state);

  bool operator==(const LossScaler&) const = default;

 private:
  bool dynamic_;
  double min_;
  int64_t growth_steps_;
  int64_t hysteresis_;
  double scale_;
  int64_t clean_ = 0;        // steps since the scale changed, or one overflowed
  int64_t under_scale_ = 0;  // overflows since the scale changed
  int64_t overflows_ = 0;
};

/// Those of a run: 1 unless it computes in fp16.
LossScalerOptions scaler_options_of(const plan::TrainConfig& config);

}  // namespace lockstep::precision
