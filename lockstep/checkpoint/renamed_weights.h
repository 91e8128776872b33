/// Weights that lie in a file of another program, under its names and in its layout.
///
/// Holds   one tensor, where a tensor is transposed;  else nothing  test:
/// HuggingFace.HoldsOneTensor
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "lockstep/checkpoint/tensor_source.h"
#include "lockstep/checkpoint/tensor_table.h"
#include "lockstep/checkpoint/weights.h"

namespace lockstep::checkpoints {

/// Throws StateError naming the source and a tensor: missing, of another shape, of a type that is
/// not read, or one that `table` does not know and `is_no_weight` does not say is a buffer.
std::unique_ptr<Weights> renamed_weights(
    WeightOrigin origin, std::unique_ptr<TensorSource> source, TensorTable table,
    const std::function<bool(const std::string&)>& is_no_weight);

/// Throws StateError if the two tensors, of one shape, do not have the same values.
void require_same_values(const TensorSource& source, const std::string& name,
                         const std::string& other);

}  // namespace lockstep::checkpoints
