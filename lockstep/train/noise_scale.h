/// The gradient noise scale: the batch at which the noise of a step's gradient is as large as the
/// gradient, about the largest that a run gains from.
///
/// Leaves of B / G samples and the whole step of B are two batches whose gradients are there
/// anyway. With s the mean of |G g_i|^2 over leaves g_i and b = |g|^2 of the whole:
///
///   |true gradient|^2 ~ (B b - B/G s) / (B - B/G)        noise ~ (s - b) / (G/B - 1/B)
///
/// Both are unbiased and jump from step to step; each is smoothed, and the scale is their ratio.
///
/// Moves   8 bytes for each leaf and parameter, over the world once a step; a pass over each leaf's
///         gradients. Nothing where it is not asked for
/// Order   squares by the chunks of plan/norm_chunks.h, leaf after leaf: the same bits on any
/// layout
///                                                            test: NoiseScale.HasTheBitsOfOneRank
/// Source  McCandlish et al. 2018, arXiv:1812.06162, appendix A.1;  docs/concepts/noise_scale.md
#pragma once

#include <limits>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/train/model_state.h"

namespace lockstep {

/// The two smoothed estimates.
class NoiseEstimate {
 public:
  /// Of the estimates before a step, this much stays.
  static constexpr double kDecay = 0.95;

  /// `leaf_square`: the mean over the step's `leaves` leaves of their squared norm, each gradient
  /// the mean over its own samples; `square`: the same of the whole, of `batch` samples.
  void add(double leaf_square, double square, int64_t batch, int leaves);

  /// In samples. NaN: nothing was added, or noise hides the gradient as yet.
  double samples() const;

 private:
  double noise_ = 0;
  double gradient_ = 0;
};

class NoiseScale {
 public:
  /// `state` must outlive this.
  NoiseScale(ModelState& state, ProcessGroup& world);
  ~NoiseScale();
  NoiseScale(const NoiseScale&) = delete;
  NoiseScale& operator=(const NoiseScale&) = delete;

  /// After a step whose gradients, of this norm, are `loss_scale` times as large as they should
  /// be. All ranks call it. `counts`: false where the step was not taken.
  void end_step(double grad_norm, double loss_scale, bool counts);

  double samples() const { return estimate_.samples(); }

 private:
  void see_leaf(int param, int leaf, const float* values);

  ModelState& state_;
  ProcessGroup& world_;
  int listener_;
  std::vector<int> places_;      // by parameter of this rank: its place by name; -1: another counts
  int64_t params_ = 0;           // of the whole model
  std::vector<double> squares_;  // by leaf and place, of this step
  std::vector<double> chunks_;
  NoiseEstimate estimate_;
};

}  // namespace lockstep
