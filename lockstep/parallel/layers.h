/// Layers that know which part of them a rank holds: what a model for `Training::build_layers` is
/// made of (train/layer_list.h).
///
/// While a list of layers is built, each takes its place in the tensor group from the builder; made
/// anywhere else, it has all of its grains. Parameters have no values: who trains them draws them.
///
/// Shapes: B samples, S sequence, T tensor grains, D width; with T = 1 activations are [B, S, D],
/// else slice-major [T, B, S/T, D], with sequence parallelism this rank's slices of that.
#pragma once

#include <torch/nn/module.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/rank_context.h"
#include "lockstep/plan/param_table.h"

namespace lockstep {

/// "The weight of this layer is the one of the layer with that name."
struct Tied {
  std::string layer;
};
inline Tied tied(std::string layer) { return {std::move(layer)}; }

/// What a layer with divided parameters says of them.
class DividedLayer {
 public:
  virtual ~DividedLayer() = default;
  /// Of a parameter by its own name, "weight@1".
  plan::TensorSlice slice_of(const std::string& name) const;
  /// The layer whose weight this one uses.
  const std::optional<Tied>& tie() const { return tie_; }

 protected:
  struct Grain {
    int grain = 0;
    at::Tensor weight;
    at::Tensor bias;  // undefined: none
  };
  /// Registers one weight, and bias, for each grain of this rank; `rows`, `columns` of the whole,
  /// of which `dim` is divided.
  void make_grains(torch::nn::Module& module, int64_t rows, int64_t columns, int dim,
                   const std::vector<int64_t>& blocks, bool bias_by_grain);
  std::vector<at::Tensor> weights() const;
  std::vector<at::Tensor> biases() const;
  const RankContext& context() const { return *context_; }

  std::optional<Tied> tie_;

 private:
  friend class BuildScope;
  std::vector<Grain> grains_;
  std::map<std::string, plan::TensorSlice> slices_;
  const RankContext* context_ = nullptr;
};

/// While it lives, layers made in this thread belong to the rank of `context`, which must outlive
/// them.
class BuildScope {
 public:
  explicit BuildScope(const RankContext& context);
  ~BuildScope();
  BuildScope(const BuildScope&) = delete;
  BuildScope& operator=(const BuildScope&) = delete;
  static const RankContext& current();

 private:
  const RankContext* before_;
};

/// Output features divided: a tensor for each grain of this rank (parallel/tensor/column_linear.h).
class ColumnLinear : public torch::nn::Module, public DividedLayer {
 public:
  /// Throws UsageError: the grains do not divide `out`.
  ColumnLinear(int64_t in, int64_t out, bool bias = true);
  std::vector<at::Tensor> forward(const at::Tensor& x) const;
};

/// Input features divided: takes what a column-parallel layer gave (parallel/tensor/row_linear.h).
class RowLinear : public torch::nn::Module, public DividedLayer {
 public:
  RowLinear(int64_t in, int64_t out, bool bias = true);
  at::Tensor forward(const std::vector<at::Tensor>& inputs) const;

 private:
  at::Tensor bias_;
};

/// Layer norm whose gain and bias sum over slices of the sequence (parallel/tensor/slice_norm.h).
class SliceNorm : public torch::nn::Module {
 public:
  explicit SliceNorm(int64_t width, double eps = 1e-5);
  at::Tensor forward(const at::Tensor& x) const;

 private:
  const RankContext* context_;
  at::Tensor weight_;
  at::Tensor bias_;
  double eps_;
};

/// Rows of a vocabulary, divided (parallel/tensor/vocab_embedding.h).
class VocabEmbedding : public torch::nn::Module, public DividedLayer {
 public:
  VocabEmbedding(int64_t vocab, int64_t width);
  /// ids [B, S] int64. Throws UsageError: the grains do not divide S.
  at::Tensor forward(const at::Tensor& ids) const;

 private:
  int64_t vocab_;
};

/// The head over a divided vocabulary. No rank holds a row of logits: `forward` hands the
/// activations on, and the loss takes them from here.
class VocabHead : public torch::nn::Module, public DividedLayer {
 public:
  VocabHead(int64_t width, int64_t vocab, std::optional<Tied> tie = {});
  at::Tensor forward(const at::Tensor& x) const { return x; }
  /// [B * S], the loss of each target [B, S] in nats; slice by slice of the sequence where it has
  /// several grains.
  at::Tensor losses(const at::Tensor& x, const at::Tensor& targets) const;

 private:
  int64_t vocab_;
};

}  // namespace lockstep
