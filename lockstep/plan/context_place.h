/// Which tokens of a sequence a rank computes, where the sequence itself is divided.
///
/// A sequence is cut into 2 C half-grains of equal length, and context grain c is the pair (c, 2 C
/// - 1 - c): under a causal mask every grain then sees the same number of keys. C is a part of the
/// run's identity, who holds which grains is layout. Runs of grains are contiguous and differ by at
/// most one, longer ones first:
///
///   C = 4, S = 16     |0 0|1 1|2 2|3 3|3 3|2 2|1 1|0 0|      3 ranks: 0 1 | 2 | 3
///
/// Source  Liu et al. 2023, arXiv:2310.01889 (ring attention); Brandon et al. 2023,
/// arXiv:2311.09431
///         (the balance); docs/concepts/context.md
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/plan/sum_tree.h"
#include "lockstep/plan/tensor_place.h"

namespace lockstep::plan {

struct ContextPlace {
  int grains = 1;
  LeafRange local{0, 1};                      // this rank's
  std::vector<LeafRange> by_rank = {{0, 1}};  // of the context group
};

/// `ranks` at most `grains`.
inline ContextPlace context_place(int grains, int ranks, int rank) {
  const TensorPlace place = place_of(grains, ranks, rank, /*sequence=*/false);
  return {.grains = place.grains, .local = place.local, .by_rank = place.by_rank};
}

/// Positions lo <= position < hi of a sequence.
struct TokenRange {
  int64_t lo = 0;
  int64_t hi = 0;
  auto operator<=>(const TokenRange&) const = default;
};

/// The two runs of tokens that `grain` of `grains` has of a sequence, which divides by 2 * grains.
inline std::array<TokenRange, 2> tokens_of(int grain, int grains, int64_t sequence) {
  const int64_t half = sequence / (2 * grains);
  const int64_t high = 2 * grains - 1 - grain;
  return {{{grain * half, (grain + 1) * half}, {high * half, (high + 1) * half}}};
}

/// Each context grain of a rank has tensors of its own for every parameter, over the same storage,
/// so that its gradients are a leaf of their own. In the module tree those of the rank's first
/// grain have the parameter's path, those of further ones this.
inline std::string context_path(int grain, const std::string& path) {
  return "context." + std::to_string(grain) + "." + path;
}
/// Of a rank that has these grains.
inline bool is_further_grain(LeafRange grains, const std::string& path) {
  return grains.size() > 1 && path.starts_with("context.");
}

}  // namespace lockstep::plan
