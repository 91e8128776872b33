/// The order in which squares are summed: by parameter name, then by chunks of 256 elements.
///
/// Each chunk's sum is taken in fp64 in 16 fixed lanes (kernels/norm.h). The chunk sums are then
/// added in the sum tree over their index here. Whoever computes a chunk, the norm has equal bits.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/plan/param_table.h"

namespace lockstep::plan {

inline constexpr int64_t kNormChunk = 256;

struct NormChunks {
  std::vector<int64_t> first_chunk;  // by parameter index: its first chunk; -1 if not trained
  int64_t chunks = 0;
};

NormChunks plan_norm_chunks(const ParamTable& table);

/// Adds `values` in the sum tree over their index. 0 for none.
double tree_sum(const double* values, int64_t count);

}  // namespace lockstep::plan
