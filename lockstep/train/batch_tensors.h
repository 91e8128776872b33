/// Rows of context + 1 tokens as a model's inputs and targets.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep {

/// `tokens` is rows x (context + 1), row-major -> ids [rows, context], targets [rows, context].
std::pair<at::Tensor, at::Tensor> inputs_and_targets(const std::vector<int64_t>& tokens,
                                                     int64_t context);

}  // namespace lockstep
