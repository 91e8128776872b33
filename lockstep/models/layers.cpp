#include "lockstep/models/layers.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>

namespace lockstep::models {
namespace {

at::Tensor unfilled(at::IntArrayRef shape) { return at::empty(shape, at::kFloat); }

}  // namespace

Matrix::Matrix(int64_t rows, int64_t columns, bool with_bias) {
  weight = register_parameter("weight", unfilled({rows, columns}));
  if (with_bias) bias = register_parameter("bias", unfilled({rows}));
}

at::Tensor Matrix::linear(const at::Tensor& x) const { return at::linear(x, weight, bias); }

Norm::Norm(int64_t width, bool with_bias, double eps_) : eps(eps_) {
  weight = register_parameter("weight", unfilled({width}));
  if (with_bias) bias = register_parameter("bias", unfilled({width}));
}

at::Tensor Norm::forward(const at::Tensor& x) const {
  return at::layer_norm(x, {x.size(-1)}, weight, bias, eps);
}

}  // namespace lockstep::models
