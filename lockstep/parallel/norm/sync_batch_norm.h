/// Batch normalisation over the batches of all ranks of a group, as if they were one.
///
///   auto norm = std::make_shared<lockstep::SyncBatchNorm>(64, world);     // world: a ProcessGroup
///   auto y = norm->forward(x);                                            // x [B, 64, H, W]
///
///   y = (x - mean) / sqrt(variance + eps) * weight + bias
///   dx = weight / sqrt(variance + eps) * (dy - (sum dy + x^ sum(dy x^)) / n),  x^ = y without
///   weight
///
/// Ranks may have batches of different sizes, or none: each number counts alike. A rank with an
/// empty batch calls forward and backward, too. Running values are the same on all ranks; the
/// variance among them is m2 / (n - 1), n the numbers of all ranks.
///
/// Moves   forward (N-1) (2 C + 1) 8 bytes a rank, backward (N-1) 2 C 8 up to 4 KiB of sums; one
///         collective each, in evaluation none                   test: SyncBatchNorm.CardHolds
/// Order   ranks are added in rank order (forward) and in the sum tree (backward): the same bits on
///         every rank and every run. Another number of ranks cuts the batch elsewhere and has other
///         bits: this layer is outside of what docs/concepts/same_bits.md promises
/// Source  Ioffe and Szegedy 2015, arXiv:1502.03167; Peng et al. 2018 (MegDet), arXiv:1711.07240;
///         docs/concepts/batch_norm.md
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/norm/moments.h"

namespace lockstep {

namespace parallel {

/// The function alone, with the statistics it found: x [B, C, ...] float32, weight and bias [C].
/// The gradients of weight and bias are those of this rank's batch. A collective of `group`, and
/// its backward another. Throws UsageError on every rank if all together have one number a channel.
at::Tensor sync_batch_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                           double eps, const std::shared_ptr<ProcessGroup>& group,
                           Moments* found = nullptr);

/// The same by given statistics, [C]: evaluation.
at::Tensor normalized(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      const at::Tensor& mean, const at::Tensor& variance, double eps);

}  // namespace parallel

struct SyncBatchNormOptions {
  /// Added to the variance.
  double eps = 1e-5;
  /// Share of the newest batch in the running values.
  double momentum = 0.1;
};

/// Where gradients are added up over ranks, as DistributedDataParallel does, those of weight and
/// bias are, too. Parameters `weight`, `bias`; buffers `running_mean`, `running_var`.
class SyncBatchNorm : public torch::nn::Module {
 public:
  /// Throws UsageError: no channels, no group, an eps that is not above 0, a momentum outside 0..1.
  SyncBatchNorm(int64_t channels, std::shared_ptr<ProcessGroup> group,
                const SyncBatchNormOptions& options = {});

  /// x [B, C, ...] float32; the same shape comes back. In training all ranks call it together.
  at::Tensor forward(const at::Tensor& x);

  at::Tensor weight;
  at::Tensor bias;
  at::Tensor running_mean;
  at::Tensor running_var;

 private:
  std::shared_ptr<ProcessGroup> group_;
  SyncBatchNormOptions options_;
};

}  // namespace lockstep
