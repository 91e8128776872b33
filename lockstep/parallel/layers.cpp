#include "lockstep/parallel/layers.h"

#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>

#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/parallel/tensor/column_linear.h"
#include "lockstep/parallel/tensor/row_linear.h"
#include "lockstep/parallel/tensor/slice_norm.h"
#include "lockstep/parallel/tensor/vocab_embedding.h"
#include "lockstep/parallel/tensor/vocab_head.h"

namespace lockstep {
namespace {

thread_local const RankContext* building = nullptr;

/// [B, S] -> [T, B, S/T].
at::Tensor by_slices(const at::Tensor& x_BS, int grains) {
  if (x_BS.size(1) % grains != 0) {
    throw UsageError(base::str("a sequence of ", x_BS.size(1), " does not divide by ", grains,
                               " tensor grains."));
  }
  return x_BS.view({x_BS.size(0), grains, x_BS.size(1) / grains}).permute({1, 0, 2}).contiguous();
}

}  // namespace

BuildScope::BuildScope(const RankContext& context) : before_(building) { building = &context; }
BuildScope::~BuildScope() { building = before_; }

const RankContext& BuildScope::current() {
  static const RankContext alone;
  return building != nullptr ? *building : alone;
}

plan::TensorSlice DividedLayer::slice_of(const std::string& name) const {
  const auto found = slices_.find(name);
  return found != slices_.end() ? found->second : plan::TensorSlice{};
}

void DividedLayer::make_grains(torch::nn::Module& module, int64_t rows, int64_t columns, int dim,
                               const std::vector<int64_t>& blocks, bool bias_by_grain) {
  context_ = &BuildScope::current();
  const plan::TensorPlace& place = context_->tensor;
  const int64_t divided = std::accumulate(blocks.begin(), blocks.end(), int64_t{0});
  if (divided % place.grains != 0) {
    throw UsageError(base::str("a layer of ", divided, " divided features does not divide by ",
                               place.grains, " tensor grains."));
  }
  for (int grain = place.local.lo; grain < place.local.hi; ++grain) {
    const std::string suffix = place.grains > 1 ? base::str("@", grain) : "";
    std::vector<int64_t> shape = {rows, columns};
    shape[static_cast<size_t>(dim)] = divided / place.grains;
    Grain made{.grain = grain,
               .weight = module.register_parameter("weight" + suffix, at::empty(shape)),
               .bias = {}};
    if (bias_by_grain) {
      made.bias = module.register_parameter("bias" + suffix, at::empty({shape[0]}));
    }
    if (place.grains > 1) {
      slices_["weight" + suffix] = {.logical = "weight",
                                    .shape = {rows, columns},
                                    .dim = dim,
                                    .blocks = blocks,
                                    .grain = grain,
                                    .grains = place.grains};
      slices_["bias" + suffix] = {.logical = "bias",
                                  .shape = {rows},
                                  .dim = 0,
                                  .blocks = blocks,
                                  .grain = grain,
                                  .grains = place.grains};
    }
    grains_.push_back(std::move(made));
  }
}

std::vector<at::Tensor> DividedLayer::weights() const {
  std::vector<at::Tensor> all;
  for (const Grain& grain : grains_) all.push_back(grain.weight);
  return all;
}

std::vector<at::Tensor> DividedLayer::biases() const {
  std::vector<at::Tensor> all;
  for (const Grain& grain : grains_) {
    if (grain.bias.defined()) all.push_back(grain.bias);
  }
  return all;
}

ColumnLinear::ColumnLinear(int64_t in, int64_t out, bool bias) {
  make_grains(*this, out, in, 0, {out}, bias);
}

std::vector<at::Tensor> ColumnLinear::forward(const at::Tensor& x) const {
  return parallel::column_linear(parallel::TensorGroup::of(context()), x, weights(), biases());
}

RowLinear::RowLinear(int64_t in, int64_t out, bool bias) {
  make_grains(*this, out, in, 1, {in}, false);
  if (bias) bias_ = register_parameter("bias", at::empty({out}));
}

at::Tensor RowLinear::forward(const std::vector<at::Tensor>& inputs) const {
  return parallel::row_linear(parallel::TensorGroup::of(context()), inputs, weights(), bias_);
}

SliceNorm::SliceNorm(int64_t width, double eps)
    : context_(&BuildScope::current()),
      weight_(register_parameter("weight", at::empty({width}))),
      bias_(register_parameter("bias", at::empty({width}))),
      eps_(eps) {}

at::Tensor SliceNorm::forward(const at::Tensor& x) const {
  return parallel::layer_norm(parallel::TensorGroup::of(*context_), x, weight_, bias_, eps_);
}

VocabEmbedding::VocabEmbedding(int64_t vocab, int64_t width) : vocab_(vocab) {
  const int grains = BuildScope::current().tensor.grains;
  make_grains(*this, vocab, width, 0, {parallel::vocab_rows(vocab, grains) * grains}, false);
}

at::Tensor VocabEmbedding::forward(const at::Tensor& ids) const {
  const auto group = parallel::TensorGroup::of(context());
  if (group.grains() == 1) return at::embedding(weights().front(), ids);
  return parallel::vocab_embedding(group, by_slices(ids, group.grains()), weights(), {}, vocab_);
}

VocabHead::VocabHead(int64_t width, int64_t vocab, std::optional<Tied> tie) : vocab_(vocab) {
  const int grains = BuildScope::current().tensor.grains;
  make_grains(*this, vocab, width, 0, {parallel::vocab_rows(vocab, grains) * grains}, false);
  tie_ = std::move(tie);
}

at::Tensor VocabHead::losses(const at::Tensor& x, const at::Tensor& targets) const {
  const auto group = parallel::TensorGroup::of(context());
  const at::Tensor of_rows = group.grains() == 1 ? targets : by_slices(targets, group.grains());
  return parallel::head_losses(group, x, weights(), of_rows.reshape({-1}), vocab_);
}

}  // namespace lockstep
