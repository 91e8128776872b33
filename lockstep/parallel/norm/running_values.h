/// Running mean and variance of a model's normalised layers, updated once a step from the
/// statistics of all its micro-batches, whoever computed them.
///
///   running = (1 - momentum) running + momentum (sum over micro-batches of theirs) / how many
///
/// which is the E[mean] and n / (n-1) E[variance] of the paper's algorithm 2. A leaf adds its
/// micro-batches in rising order, leaves meet in the sum tree (plan/sum_tree.h), all in float64:
/// the running values have the same bits on any layout if the statistics have.
///
/// A micro-batch is known by leaf and number, so one that is computed again in backward counts
/// once.
///
/// Moves   a step: an all-reduce of 2 C + 1 float64, C all normalised channels of the model; up to
///         4 KiB (N-1) (2 C + 1) 8 bytes a rank      test: RunningValues.CardHolds
/// Holds   2 C float64 for each micro-batch of the step that this rank computes
/// Source  Ioffe and Szegedy 2015, arXiv:1502.03167;  docs/concepts/batch_norm.md
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <utility>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/norm/moments.h"

namespace lockstep::parallel {

class RunningValues {
 public:
  /// `momentum`: the share of the newest step.
  explicit RunningValues(double momentum) : momentum_(momentum) {}

  /// A layer's buffers [C] float32, which `update` writes. Returns the layer's number.
  int add(at::Tensor mean, at::Tensor variance);

  /// What layer `layer` found in a micro-batch.
  void see(int layer, int leaf, int micro, const Moments& moments);

  /// Drops what was seen of a step that does not count.
  void forget() { seen_.clear(); }

  /// Writes the buffers from what the ranks of `group` saw since the last time, together every
  /// micro-batch of `leaves` leaves. A collective. Nothing happens in a model without layers.
  void update(ProcessGroup& group, int leaves);

 private:
  struct Layer {
    at::Tensor mean;
    at::Tensor variance;
  };
  using MicroBatch = std::pair<int, int>;  // leaf and number in it

  std::map<int, at::Tensor> sums_by_leaf() const;

  double momentum_;
  std::vector<Layer> layers_;
  std::map<MicroBatch, std::map<int, Moments>> seen_;  // by layer
};

}  // namespace lockstep::parallel
