/// An optimizer that scales each parameter's step by a trust ratio, which two norms over the whole
/// logical parameter give. A span has only a part of it, so a step is three calls:
///
///   measure       sums of squares of the span's chunks  ->  the caller adds those of all ranks
///   set_norms     the norms of each span's parameter    <-  in the order of plan/norm_chunks.h
///   step          the weights
///
/// Knows no layout. Whoever holds which span, the bits are those of one rank that has all.
#pragma once

#include <vector>

#include "lockstep/optim/span.h"
#include "lockstep/optim/updater.h"

namespace lockstep::optim {

/// Where sums of squares go, one number for each 256 elements of a span. Null: nobody asks; of a
/// parameter that several ranks hold, one counts it.
struct ChunkSums {
  double* weights = nullptr;
  double* updates = nullptr;  // of the gradient (LARS) or the direction of the update (LAMB)
};

/// Of the whole parameter that a span is a part of.
struct TrustNorms {
  double weight = 0;
  double update = 0;
};

class TrustUpdater : public Updater {
 public:
  /// `sums` by span. Moments that do not depend on ratios take the step here. Throws UsageError:
  /// `grad_scale` not finite; nothing was changed then.
  virtual void measure(double grad_scale, const std::vector<ChunkSums>& sums) = 0;

  /// By span, for the step at hand.
  void set_norms(std::vector<TrustNorms> norms);

 protected:
  TrustUpdater(const char* name, std::vector<Span> spans);

  /// To begin measure and step with: arguments, and that the calls come in their order.
  void begin_measure(double grad_scale, const std::vector<ChunkSums>& sums);
  std::vector<TrustNorms> begin_step(double lr, double grad_scale);

  const char* name_;
  std::vector<Span> spans_;

 private:
  std::vector<TrustNorms> norms_;
  double measured_scale_ = 0;
  bool measured_ = false;
};

}  // namespace lockstep::optim
