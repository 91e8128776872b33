/// Own loop on any number of ranks with a module that is whole on none of them: every rank keeps
/// its share of each parameter, of its gradient and of the optimizer's state, and gathers a layer
/// just in time for its use (ZeRO-3, "fully sharded data parallel").
///
///   auto h = lockstep::fully_shard(net, world);
///   torch::optim::AdamW opt(h.parameters(), 1e-3);
///   for (...) { h.zero_grad();  h.backward(loss_of(net->forward(x), y));  opt.step(); }
///
/// The module's type does not change, nor is it wrapped: an operator that takes a parameter brings
/// its unit together first (torch_inside/first_touch.h). Units are layers of a list ("h.3"), or
/// what a policy says; what is in none is the root. From the second pass on, units are gathered
/// `prefetch` ahead, in the order that was learned.
///
/// All ranks run the same layers in the same order. Any operator that takes a parameter gathers,
/// also outside forward and backward: all ranks do it, or none. A rank that comes to another unit
/// than its peers ends all of them with a CommError that names both.
///
/// Values are those of the shards: write to `parameters()`, by LibTorch's operators, which are
/// noticed on each rank (`release` for others). Code that reads a module's parameter by its address
/// (`data_ptr`) does not gather.
///
/// Moves   a step: two gathers of each unit (one if it stays for backward) and one reduce-scatter,
///         each (D - 1) / D of its bytes; 8 bytes a rank beside each gather; 16 bytes of agreement
///                                                                test: FullyShard.MovesThreeShares
/// Holds   4 bytes an element / D each for parameters and gradients; gathered: the root and at most
///         prefetch + 1 units; gradients of the units that backward is in, whole
///                                                 test: FullyShard.ZERO_8_NeverMoreThanDepthAndOne
/// Order   the sum tree over ranks: the bits of DistributedDataParallel on as many ranks
/// Source  Zhao et al. 2023, "PyTorch FSDP", VLDB 16(12); Rajbhandari et al. 2020, "ZeRO", SC20;
///         docs/concepts/fsdp.md
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/train/ddp_options.h"

namespace lockstep {

struct FullyShardOptions {
  Reduction reduction = Reduction::mean;
  /// Units gathered ahead of their use. More hides more, and holds more.
  int prefetch = 1;
  /// Frees a unit after forward and gathers it again for backward. Without that a step moves a
  /// third less, and the whole model is gathered between forward and backward.
  bool reshard_after_forward = true;
  UnusedParameters unused = UnusedParameters::refuse;
  /// The policy: which unit a parameter belongs to by its path; "" is the root. Not set: by layers
  /// of a list, plan::unit_of. A parameter with several paths in different units is the root's.
  std::function<std::string(const std::string& path)> unit_of = {};
};

/// What this rank owns of a unit's parameters that have two dimensions or more, or of its others.
struct OwnShard {
  std::string unit;
  bool matrices = false;
  at::Tensor values;  // flat; a leaf with `.grad` after backward; may have no elements
};

struct FullyShardCounts {
  int64_t gathers = 0;              // of units, the root included
  int most_gathered = 0;            // units at once, besides the root
  int64_t reductions = 0;           // of units
  int64_t moved_bytes = 0;          // of peers' memory, read and written
  int64_t shard_bytes = 0;          // of parameters, held by this rank
  int64_t most_gradient_bytes = 0;  // of units' whole gradients at once
};

enum class Norm { euclidean, largest };

/// The handle of a divided module, which it keeps. The module is of no use without it.
class FullyShard {
 public:
  FullyShard(std::shared_ptr<torch::nn::Module> module, std::shared_ptr<ProcessGroup> group,
             const FullyShardOptions& options = {});
  ~FullyShard();
  FullyShard(FullyShard&& other) noexcept;
  FullyShard& operator=(FullyShard&& other) noexcept;

  /// This rank's shards, the same number on every rank: for any optimizer that works element by
  /// element. The optimizer belongs to these, not to the module's parameters.
  std::vector<at::Tensor> parameters() const;
  /// Those of parameters with two dimensions or more (which are decayed), or the others (which are
  /// not).
  std::vector<at::Tensor> parameters(bool matrices) const;
  const std::vector<OwnShard>& shards() const;

  /// Makes every `.grad` undefined, which saves a copy of them in the next backward.
  void zero_grad();

  /// In place of loss.backward(). Returns when all gradients are reduced, in `.grad` of the shards;
  /// inside no_sync, when they are accumulated. Gradients that are there are added to.
  ///
  /// loss      any shape; with more than one element `gradient` of the same shape is needed
  /// throws    UsageError: unused parameters; a parameter that was frozen or unfrozen since the
  ///           start. CommError: a peer left, or came to another unit
  void backward(const at::Tensor& loss, const at::Tensor& gradient = {}, bool retain_graph = false);

  /// While it lives, gradients accumulate whole on this rank: 4 bytes an element of the model. The
  /// next backward without it reduces them.
  class NoSync {
   public:
    explicit NoSync(FullyShard& handle);
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    bool& local_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

  /// Scales all gradients so that their norm over all ranks is at most `max_norm`. The norm before
  /// that, with the same bits on every rank. All ranks call it.
  double clip_grad_norm(double max_norm, Norm norm = Norm::euclidean);

  /// A parameter's values, whole, by any of its paths. All ranks call it, outside of backward.
  at::Tensor whole(const std::string& path);

  /// Frees what a forward without backward has left gathered. To be called after shards were
  /// written by other means than LibTorch's operators, which are noticed.
  void release();

  FullyShardCounts counts() const;
  torch::nn::Module& module() const;
  ProcessGroup& group() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Divides the parameters of `module` among the ranks of `group`, which all call it alike. First,
/// names, shapes, types, units and options are compared: a difference is a UsageError on every rank
/// that names the first one, before any weight is sent. Then all take rank 0's values and keep
/// their shares.
///
/// module  parameters dense, float32, on the CPU; one may be registered under several paths
inline FullyShard fully_shard(std::shared_ptr<torch::nn::Module> module,
                              std::shared_ptr<ProcessGroup> group,
                              const FullyShardOptions& options = {}) {
  return FullyShard(std::move(module), std::move(group), options);
}
/// For holders such as torch::nn::Sequential and torch::nn::LSTM.
template <class M>
FullyShard fully_shard(const torch::nn::ModuleHolder<M>& module,
                       std::shared_ptr<ProcessGroup> group, const FullyShardOptions& options = {}) {
  return FullyShard(std::shared_ptr<torch::nn::Module>(module.ptr()), std::move(group), options);
}

}  // namespace lockstep
