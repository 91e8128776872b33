/// The small modules that hold a model's parameters. They own no algorithm: a model says what is
/// computed from their weights. Storage is not filled here, and no generator is touched.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/parallel/tensor/column_linear.h"
#include "lockstep/plan/param_table.h"
#include "lockstep/plan/tensor_place.h"

namespace lockstep::models {

/// weight (rows, columns), and a bias (rows) if asked for: a linear map, out = x weight^T + bias,
/// or an embedding table, a row each.
struct Matrix final : torch::nn::Module {
  Matrix(int64_t rows, int64_t columns, bool with_bias);
  at::Tensor linear(const at::Tensor& x) const;

  at::Tensor weight;
  at::Tensor bias;  // undefined: none
};

/// Which direction of a weight (rows, columns) tensor grains divide.
enum class Cut { rows, columns };

/// A linear map or an embedding table over tensor grains: one tensor for each grain of this rank,
/// "weight@2" of grain 2; "weight" where there is one grain in all. Rows that do not divide (a
/// vocabulary) are padded to a multiple of the grains.
struct GrainMatrix final : torch::nn::Module {
  /// `row_blocks` add up to the rows; Cut::rows divides each of them.
  GrainMatrix(std::vector<int64_t> row_blocks, int64_t columns, bool with_bias, Cut cut,
              const plan::TensorPlace& place);

  /// x weight^T + bias by rows of the weight: one output a grain.
  std::vector<at::Tensor> by_rows(const parallel::TensorGroup& group, const at::Tensor& x,
                                  const parallel::ColumnOptions& options = {}) const;
  /// The same by its columns: one input a grain, one output.
  at::Tensor by_columns(const parallel::TensorGroup& group,
                        const std::vector<at::Tensor>& inputs) const;

  /// Which part of a parameter the tensor of this name is; its logical name has no "@".
  plan::TensorSlice slice_of(const std::string& name) const;

  std::vector<at::Tensor> weights;
  std::vector<at::Tensor> biases;  // a grain each; by columns one, alike on every rank; or none

 private:
  std::map<std::string, plan::TensorSlice> slices_;
};

/// Layer or RMS normalisation over the last direction, with gain `weight` and shift `bias`.
struct Norm final : torch::nn::Module {
  enum class Kind { layer, rms };

  Norm(Kind kind, int64_t width, bool with_bias, double eps);
  at::Tensor forward(const parallel::TensorGroup& group, const at::Tensor& x) const;
  /// (x + branch, its norm)
  std::pair<at::Tensor, at::Tensor> after(const parallel::TensorGroup& group, const at::Tensor& x,
                                          const at::Tensor& branch) const;

  Kind kind;
  at::Tensor weight;
  at::Tensor bias;  // undefined: none
  double eps;
};

}  // namespace lockstep::models
