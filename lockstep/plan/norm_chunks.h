/// The order in which squares are summed: by parameter name, then by chunks of 256 elements.
///
/// Each chunk's sum is taken in fp64 in 16 fixed lanes (kernels/norm.h). The chunk sums are then
/// added in the sum tree over their index here: one tree for the norm of the gradient, one for each
/// logical parameter for trust ratios. Whoever computes a chunk, the norms have equal bits.
///
///   a.weight@0  a.weight@1  b.bias      whole           one sum over chunks 0 to 6
///   |0 1 2|     |3 4 5|     |6|         by_parameter    chunks 0 to 5, and chunk 6
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/plan/param_table.h"

namespace lockstep::plan {

inline constexpr int64_t kNormChunk = 256;

/// What makes one sum: all squares, or those of a logical parameter, all its tensor grains.
enum class NormSums { whole, by_parameter };

struct NormChunks {
  std::vector<int64_t> first_chunk;  // by parameter index: its first chunk; -1 if not trained
  std::vector<int> sum;              // by parameter index: the sum it belongs to; -1 the same
  std::vector<int64_t> ends;         // by sum: behind its last chunk, where the next one begins
  int64_t chunks = 0;

  int64_t begin_of(size_t sum) const { return sum == 0 ? 0 : ends[sum - 1]; }
};

NormChunks plan_norm_chunks(const ParamTable& table, NormSums sums = NormSums::whole);

/// Adds `values` in the sum tree over their index. 0 for none.
double tree_sum(const double* values, int64_t count);

}  // namespace lockstep::plan
