/// A residual network for small pictures, of the form that He et al. use for CIFAR-10.
///
///   3x3 stem, w channels
///   3 stages of n blocks, w, 2w, 4w channels; the first block of stages 2 and 3 halves the picture
///   mean over the picture, linear map to the classes                     6 n + 2 layers
///
///   block:  x --> 3x3 --> norm --> relu --> 3x3 --> norm --> + --> relu
///            `------------------ shortcut ------------------'
///
/// The shortcut has no parameters (their option A): where a block halves the picture it takes every
/// second row and column, and fills the new channels with zeros.
///
/// Parameters, in the order of use: stem.weight (w, 1, 3, 3), stem_norm, then blocks.N.conv1,
/// blocks.N.norm1, blocks.N.conv2, blocks.N.norm2, then head.weight (classes, 4w), head.bias. Norms
/// have weight and bias, and those over batches running_mean and running_var
/// (parallel/norm/channel_norm.h says what the kinds are, and which have the same bits on any
/// layout: all but sync).
///
/// Source  He et al. 2016, arXiv:1512.03385, section 4.2;  docs/concepts/batch_norm.md
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/rank_context.h"
#include "lockstep/parallel/norm/channel_norm.h"
#include "lockstep/plan/param_table.h"
#include "lockstep/plan/train_config.h"

namespace lockstep::models {

struct ResNetSettings {
  int64_t blocks = 1;  // a stage
  int64_t width = 16;  // channels of the first stage
  int64_t classes = 10;
  int64_t channels = 1;        // of a picture: 1 grey, 3 colours
  std::string norm = "batch";  // sync | batch | group | layer
  double norm_eps = 1e-5;
  double momentum = 0.1;   // share of the newest step in running values
  bool recompute = false;  // what is inside a block, in backward
};

class ResNet final : public torch::nn::Module {
 public:
  static constexpr int kStages = 3;

  /// Throws UsageError naming field and value.
  explicit ResNet(const ResNetSettings& settings);

  /// x [B, channels, H, W] float32 -> [B, classes]. context.training says which statistics norms
  /// take; leaf and micro-batch, under which they are kept for `end_step`.
  at::Tensor forward(const at::Tensor& x, const RankContext& context);

  /// The norms are of kind sync.
  bool wants_group() const { return settings_.norm == "sync"; }
  /// The ranks that they span then.
  void synchronize_over(std::shared_ptr<ProcessGroup> group);
  /// After a step that counts: running values follow what the ranks of `group` saw in its `leaves`
  /// leaves. A collective of kinds with running values; nothing for the others.
  void end_step(ProcessGroup& group, int leaves);
  /// Before a step: what was seen in one that did not count is dropped.
  void begin_step() { share_->running.forget(); }

  /// Convolutions and head: normal, sqrt(2 / inputs of an output); gains 1, biases 0.
  plan::Init init_of(const std::string& path) const;

  /// Multiplications and additions of forward and backward for a picture of rows x columns.
  double flops_per_picture(int64_t rows, int64_t columns) const;

 private:
  struct Block;

  ResNetSettings settings_;
  std::shared_ptr<parallel::NormShare> share_;
  at::Tensor stem_;
  std::shared_ptr<parallel::ChannelNorm> stem_norm_;
  std::vector<std::shared_ptr<Block>> blocks_;
  at::Tensor head_weight_;
  at::Tensor head_bias_;
};

/// The network of `config.model` for pictures of so many classes, its parameters not yet filled.
std::shared_ptr<ResNet> make_resnet(const plan::TrainConfig& config, int64_t classes);

}  // namespace lockstep::models
