/// Bytes that a context group moves for one causal attention, by rank, as its ledger counts.
///
///   of S tokens, n samples x key heads of width K, fp32; the rank has s of the tokens
///     forward    keys and values of all others                (S - s) 2 n K 4
///     backward   the same again, and gradients of all         (S - s) 2 n K 4 + S 2 n K 4
///
/// Gradients come by once a rank and then home, so a rank reads those of its own tokens too. One
/// rank alone moves nothing. Where attention is computed again in backward, its forward moves once
/// more.
///
/// Test    RingAttention.LedgerEqualsThePlan
/// Source  Liu et al. 2023, arXiv:2310.01889;  docs/concepts/context.md
#pragma once

#include <cstdint>

#include "lockstep/plan/context_place.h"

namespace lockstep::plan {

struct ContextShape {
  int64_t sequence = 0;  // tokens of all ranks; divides by 2 * grains
  int64_t heads = 0;     // samples x heads of keys
  int64_t width = 0;     // of a head
};

struct ContextBytes {
  int64_t forward = 0;
  int64_t backward = 0;
  bool operator==(const ContextBytes&) const = default;
};

/// Of the rank whose place it is: bytes of peers' memory that it reads.
ContextBytes context_bytes(const ContextShape& shape, const ContextPlace& place);

}  // namespace lockstep::plan
