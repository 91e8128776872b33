#include "lockstep/models/layers.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>

#include <numeric>

#include "lockstep/base/assert.h"
#include "lockstep/base/str.h"
#include "lockstep/fused/norm.h"
#include "lockstep/parallel/tensor/linear.h"
#include "lockstep/parallel/tensor/row_linear.h"
#include "lockstep/parallel/tensor/slice_norm.h"

namespace lockstep::models {
namespace {

at::Tensor unfilled(at::IntArrayRef shape) { return at::empty(shape, at::kFloat); }

}  // namespace

Matrix::Matrix(int64_t rows, int64_t columns, bool with_bias) {
  weight = register_parameter("weight", unfilled({rows, columns}));
  if (with_bias) bias = register_parameter("bias", unfilled({rows}));
}

at::Tensor Matrix::linear(const at::Tensor& x) const { return at::linear(x, weight, bias); }

GrainMatrix::GrainMatrix(std::vector<int64_t> row_blocks, int64_t columns, bool with_bias, Cut cut,
                         const plan::TensorPlace& place) {
  const int T = place.grains;
  const int64_t rows = std::accumulate(row_blocks.begin(), row_blocks.end(), int64_t{0});
  int64_t own_rows = rows, own_columns = columns;
  std::vector<int64_t> blocks{columns};
  if (cut == Cut::rows) {
    blocks = std::move(row_blocks);
    for (int64_t& block : blocks) block = (block + T - 1) / T * T;
    own_rows = std::accumulate(blocks.begin(), blocks.end(), int64_t{0}) / T;
  } else {
    LOCKSTEP_ASSERT(columns % T == 0, "a model checks that the grains divide its sizes");
    own_columns = columns / T;
  }
  const auto add = [&](const char* name, std::vector<int64_t> own, std::vector<int64_t> whole,
                       int grain) {
    const std::string path = T == 1 ? name : base::str(name, "@", grain);
    if (T > 1) {
      slices_[path] = {.logical = name,
                       .shape = std::move(whole),
                       .dim = cut == Cut::rows ? 0 : 1,
                       .blocks = blocks,
                       .grain = grain,
                       .grains = T};
    }
    return register_parameter(path, unfilled(own));
  };
  for (int t = place.local.lo; t < place.local.hi; ++t) {
    weights.push_back(add("weight", {own_rows, own_columns}, {rows, columns}, t));
    if (with_bias && cut == Cut::rows) biases.push_back(add("bias", {own_rows}, {rows}, t));
  }
  if (with_bias && cut == Cut::columns) {
    biases.push_back(register_parameter("bias", unfilled({rows})));
  }
}

std::vector<at::Tensor> GrainMatrix::by_rows(const parallel::TensorGroup& group,
                                             const at::Tensor& x,
                                             const parallel::ColumnOptions& options) const {
  if (group.grains() > 1) return parallel::column_linear(group, x, weights, biases, options);
  return {parallel::linear(group, x, weights[0], biases.empty() ? at::Tensor() : biases[0])};
}

at::Tensor GrainMatrix::by_columns(const parallel::TensorGroup& group,
                                   const std::vector<at::Tensor>& inputs) const {
  const at::Tensor bias = biases.empty() ? at::Tensor() : biases[0];
  if (group.grains() > 1) return parallel::row_linear(group, inputs, weights, bias);
  return parallel::linear(group, inputs[0], weights[0], bias);
}

plan::TensorSlice GrainMatrix::slice_of(const std::string& name) const {
  const auto found = slices_.find(name);
  return found == slices_.end() ? plan::TensorSlice{} : found->second;
}

Norm::Norm(Kind kind_, int64_t width, bool with_bias, double eps_) : kind(kind_), eps(eps_) {
  weight = register_parameter("weight", unfilled({width}));
  if (with_bias) bias = register_parameter("bias", unfilled({width}));
}

at::Tensor Norm::forward(const parallel::TensorGroup& group, const at::Tensor& x) const {
  if (group.arithmetic.fused && group.grains() == 1) {
    return kind == Kind::rms ? fused::rms_norm(x, weight, eps)
                             : fused::layer_norm(x, weight, bias, eps);
  }
  if (kind == Kind::rms) return parallel::rms_norm(group, x, weight, eps);
  if (group.grains() > 1) return parallel::layer_norm(group, x, weight, bias, eps);
  return at::layer_norm(x, {x.size(-1)}, weight, bias, eps);
}

std::pair<at::Tensor, at::Tensor> Norm::after(const parallel::TensorGroup& group,
                                              const at::Tensor& x, const at::Tensor& branch) const {
  if (group.arithmetic.fused && group.grains() == 1) {
    return kind == Kind::rms ? fused::residual_rms_norm(x, branch, weight, eps)
                             : fused::residual_layer_norm(x, branch, weight, bias, eps);
  }
  const at::Tensor sum = x + branch;
  return {sum, forward(group, sum)};
}

}  // namespace lockstep::models
