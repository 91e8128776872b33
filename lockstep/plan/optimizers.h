/// The optimizers there are, by name, and what plans must know of each
/// (docs/concepts/optimizers.md).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace lockstep::plan {

enum class Optimizer { adamw, sgd, lars, lamb };

struct OptimizerName {
  std::string_view name;
  /// fp32 numbers that it keeps for each element.
  int moments;
  /// Its step is scaled by norms of whole parameters.
  bool has_ratios;
};

/// In the order of `Optimizer`.
inline constexpr std::array<OptimizerName, 4> kOptimizers = {
    {{"adamw", 2, false}, {"sgd", 1, false}, {"lars", 1, true}, {"lamb", 2, true}}};

constexpr const OptimizerName& traits_of(Optimizer optimizer) {
  return kOptimizers[static_cast<std::size_t>(optimizer)];
}

Optimizer parse_optimizer(std::string_view name);  // throws UsageError

}  // namespace lockstep::plan
