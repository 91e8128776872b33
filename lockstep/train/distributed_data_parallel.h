/// Own loop on any number of ranks: every rank holds a replica of a module, computes on its own
/// data, and finds the mean (or the sum) of all ranks' gradients in `.grad` after backward.
///
///   lockstep::DistributedDataParallel ddp(net, world);
///   for (...) { ddp.zero_grad();  ddp.backward(loss_of(net->forward(x), y));  optimizer.step(); }
///
/// The module's type does not change and `forward` is called on it as before. Gradients are views
/// of buckets in the shared heap; a bucket's reduction starts when its last gradient has arrived,
/// and what backward did not hide is waited for before `backward` returns. Replicas end every step
/// with equal bits; equality with one process holds within rounding (for the same bits on any
/// layout, see Trainer).
///
/// Moves   an all-reduce of every bucket a synchronized backward, + 16 bytes of agreement (none
///         with static_graph after the first), + the buffers        test: Ddp.MovesItsBuckets
/// Holds   a gradient's bytes for each trained element, padded to 16 elements a parameter
/// Order   buckets are reduced in rising order on every rank, whatever order they complete in
/// Source  Li et al. 2020, "PyTorch Distributed", VLDB 13(12);
///         docs/concepts/distributed_data_parallel.md
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

class DistributedDataParallel {
 public:
  /// All ranks of `group` make it alike. First, names, shapes, types and options are compared: a
  /// difference is a UsageError on every rank that names the first parameter that differs, before
  /// any weight is sent. Then all ranks take rank 0's parameters and buffers.
  ///
  /// module  parameters dense, on the CPU, of float32, float64, bfloat16 or float16
  DistributedDataParallel(std::shared_ptr<torch::nn::Module> module,
                          std::shared_ptr<ProcessGroup> group, const DdpOptions& options = {});
  /// For holders such as torch::nn::Sequential and torch::nn::LSTM.
  template <class M>
  DistributedDataParallel(const torch::nn::ModuleHolder<M>& module,
                          std::shared_ptr<ProcessGroup> group, const DdpOptions& options = {})
      : DistributedDataParallel(std::shared_ptr<torch::nn::Module>(module.ptr()), std::move(group),
                                options) {}
  ~DistributedDataParallel();
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  /// Makes every `.grad` undefined, in any version of LibTorch.
  void zero_grad();

  /// In place of loss.backward(). Returns when all gradients are reduced; inside no_sync, when they
  /// are accumulated. Gradients that are there are added to.
  ///
  /// loss      any shape; with more than one element `gradient` of the same shape is needed
  /// throws    UsageError: unused parameters; a parameter that was frozen or unfrozen since the
  ///           start; a sparse gradient. CommError: a peer left, or time ran out
  void backward(const at::Tensor& loss, const at::Tensor& gradient = {}, bool retain_graph = false);

  /// While it lives, gradients accumulate on this rank only, whether backward is called here or on
  /// the loss; the next backward without it reduces the whole. What counts is where backward runs,
  /// not where forward did.
  class NoSync {
   public:
    explicit NoSync(DistributedDataParallel& ddp);
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DistributedDataParallel& ddp_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

  /// Runs `loop`, in which ranks may make different numbers of synchronized backwards. A rank whose
  /// loop is over takes part in the others' reductions with zeros until all are done; then all
  /// ranks take the parameters and buffers of a rank that was in the last step. The state of a
  /// user's optimizer is not part of that.
  ///
  /// Costs an exchange of 8 bytes a rank before each backward.
  void join(const std::function<void()>& loop, JoinDivisor divisor = JoinDivisor::world);

  /// Throws CommError, naming the first parameter or buffer whose bits differ and the ranks, unless
  /// all replicas are equal. All ranks call it. Equal is not finite: a NaN of one rank is in the
  /// mean of all, and replicas that are all NaN agree.
  void verify_replicas();

  /// Bytes of the buckets, in the shared heap.
  int64_t bucket_bytes() const;
  /// Bucket reductions so far: what a test or a curious user compares with the number of steps.
  int64_t reductions() const;

  torch::nn::Module& module() const;
  ProcessGroup& group() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
