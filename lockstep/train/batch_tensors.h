/// Rows of context + 1 tokens as a model's inputs and targets; the losses that come back, summed.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep {

/// `tokens` is rows x (context + 1), row-major -> ids [rows, context], targets [rows, context].
std::pair<at::Tensor, at::Tensor> inputs_and_targets(const std::vector<int64_t>& tokens,
                                                     int64_t context);

/// Token losses in fp64, in token order: the same bits whoever adds them.
double sum_in_order(const at::Tensor& losses);

}  // namespace lockstep
