/// Pieces of ranks as parts of logical tensors, which every layout has.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/files/witness_file.h"
#include "lockstep/plan/param_table.h"

namespace lockstep::report::detail {

using Tensor = std::pair<std::string, std::string>;  // kind of piece, logical name

/// A tensor of the lone run, put together from its pieces.
struct Whole {
  std::vector<float> values;
  std::vector<char> is_there;  // by element
  std::vector<char> is_held;   // by a rank of the layout: for the comparison to fill
  double largest = 0;          // magnitude
};

/// A run of a rank's piece that is a run of a logical tensor. The values are the witness's.
struct Part {
  int rank = 0;
  const float* values = nullptr;
  plan::LogicalRun run;
};

/// The number in "h.3.mlp.c_fc.weight"; -1: none.
int layer_in(const std::string& name);

/// The logical names, in the order of the model.
std::vector<std::string> logical_order(const plan::ParamTable& table);

std::map<Tensor, Whole> wholes_of(const files::StepWitness& alone);
std::map<Tensor, std::vector<Part>> parts_of(const std::vector<const files::StepWitness*>& ranks);

}  // namespace lockstep::report::detail
