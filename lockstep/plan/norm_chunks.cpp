#include "lockstep/plan/norm_chunks.h"

#include <array>
#include <bit>

namespace lockstep::plan {
namespace {

/// A whole node of eight leaves.
double sum_of_eight(const double* v) {
  return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
}

}  // namespace

NormChunks plan_norm_chunks(const ParamTable& table, NormSums sums) {
  NormChunks plan;
  plan.first_chunk.assign(table.params.size(), -1);
  plan.sum.assign(table.params.size(), -1);
  const std::string* logical = nullptr;  // of the sum at hand
  for (const int index : table.by_name) {
    const Param& param = table.params[static_cast<size_t>(index)];
    if (!param.trainable) continue;
    // Grains differ in what stands behind their parameter's name, so they follow each other.
    const bool goes_on =
        logical != nullptr && (sums == NormSums::whole || *logical == logical_name(param));
    if (!goes_on) plan.ends.push_back(plan.chunks);
    logical = &logical_name(param);
    plan.first_chunk[static_cast<size_t>(index)] = plan.chunks;
    plan.sum[static_cast<size_t>(index)] = static_cast<int>(plan.ends.size()) - 1;
    plan.chunks += (param.numel + kNormChunk - 1) / kNormChunk;
    plan.ends.back() = plan.chunks;
  }
  return plan;
}

double tree_sum(const double* values, int64_t count) {
  // A binary counter (sum_tree.h) that starts with nodes of eight and ends with single leaves: the
  // node sizes on the stack fall from the bottom up, and equal neighbours merge.
  std::array<double, 64> stack{};
  size_t depth = 0;
  const int64_t eights = count / 8;
  for (int64_t i = 0; i < eights; ++i) {
    stack[depth++] = sum_of_eight(values + 8 * i);
    for (int merges = std::countr_one(static_cast<uint64_t>(i)); merges > 0; --merges) {
      --depth;
      stack[depth - 1] += stack[depth];
    }
  }
  for (int64_t i = 8 * eights; i < count; ++i) {
    stack[depth++] = values[i];
    for (int merges = std::countr_one(static_cast<uint64_t>(i & 7)); merges > 0; --merges) {
      --depth;
      stack[depth - 1] += stack[depth];
    }
  }
  for (; depth > 1; --depth) stack[depth - 2] += stack[depth - 1];
  return stack[0];  // still zero if there was nothing to add
}

}  // namespace lockstep::plan
