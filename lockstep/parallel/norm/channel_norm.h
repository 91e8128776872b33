/// One normalised layer of a picture model, of four kinds that differ in what they take the mean
/// and variance of:
///
///            samples            values of a sample     depends on
///   sync     of the micro-batches that all ranks       how many ranks there are
///            compute at the same time, each channel
///   batch    of the micro-batch, each channel          the micro-batch: the same bits on any
///   layout group    one at a time, a few channels together    nothing else: the same bits on any
///   layout layer    one at a time, all channels               nothing else: the same bits on any
///   layout
///
/// In evaluation sync and batch take running values, and their forward is that of a sample alone.
/// Source  Ioffe and Szegedy 2015, arXiv:1502.03167; Wu and He 2018, arXiv:1803.08494;
///         docs/concepts/batch_norm.md
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>

#include "lockstep/comm/rank_context.h"
#include "lockstep/parallel/norm/running_values.h"

namespace lockstep::parallel {

enum class NormKind { sync, batch, group, layer };

/// "sync", "batch", "group", "layer". Throws UsageError for another name.
NormKind norm_kind_of(const std::string& name);

/// What the norms of one model share.
struct NormShare {
  double eps = 1e-5;
  RunningValues running{0.1};
  std::shared_ptr<ProcessGroup> group = {};  // of sync
};

/// Parameters `weight`, `bias` [C]; of sync and batch buffers `running_mean`, `running_var`.
class ChannelNorm final : public torch::nn::Module {
 public:
  /// Channels that the kind `group` takes together.
  static constexpr int64_t kGroup = 8;

  /// Throws UsageError: kind `group`, and kGroup does not divide `channels`.
  ChannelNorm(NormKind kind, int64_t channels, std::shared_ptr<NormShare> share);

  /// x [B, C, H, W]. What sync and batch found in training goes to share.running, under the leaf
  /// and micro-batch of `context`. Throws UsageError: sync without a group.
  at::Tensor forward(const at::Tensor& x, const RankContext& context);

  at::Tensor weight;
  at::Tensor bias;
  at::Tensor running_mean;  // undefined: the kind has no statistics
  at::Tensor running_var;

 private:
  at::Tensor over_batch(const at::Tensor& x, Moments* found);

  NormKind kind_;
  std::shared_ptr<NormShare> share_;
  int number_ = -1;  // among the layers with running values
};

}  // namespace lockstep::parallel
