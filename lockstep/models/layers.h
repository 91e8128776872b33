/// The small modules that hold a model's parameters. They own no algorithm: a model says what is
/// computed from their weights. Storage is not filled here, and no generator is touched.
#pragma once

#include <torch/nn/module.h>

namespace lockstep::models {

/// weight (rows, columns), and a bias (rows) if asked for: a linear map, out = x weight^T + bias,
/// or an embedding table, a row each.
struct Matrix final : torch::nn::Module {
  Matrix(int64_t rows, int64_t columns, bool with_bias);
  at::Tensor linear(const at::Tensor& x) const;

  at::Tensor weight;
  at::Tensor bias;  // undefined: none
};

/// Layer normalisation over the last direction, with gain `weight` and shift `bias`.
struct Norm final : torch::nn::Module {
  Norm(int64_t width, bool with_bias, double eps);
  at::Tensor forward(const at::Tensor& x) const;

  at::Tensor weight;
  at::Tensor bias;  // undefined: none
  double eps;
};

}  // namespace lockstep::models
