/// The type of the operands of matrix products (docs/concepts/precision.md).
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace lockstep::plan {

enum class ComputeType { fp32, bf16, fp16 };

/// In the order of `ComputeType`.
inline constexpr std::array<std::string_view, 3> kComputeTypes = {"fp32", "bf16", "fp16"};

constexpr std::string_view name_of(ComputeType type) {
  return kComputeTypes[static_cast<std::size_t>(type)];
}

/// `name` is one of them: the table of settings has checked it.
constexpr ComputeType parse_compute_type(std::string_view name) {
  std::size_t i = 0;
  while (i + 1 < kComputeTypes.size() && kComputeTypes[i] != name) ++i;
  return static_cast<ComputeType>(i);
}

/// What the layers of a run compute with: a part of its identity.
struct Arithmetic {
  bool fused = false;  // Lockstep's kernels and oneDNN; else LibTorch's operators
  ComputeType compute = ComputeType::fp32;
};

}  // namespace lockstep::plan
