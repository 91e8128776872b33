/// Terms to results: the additions of a canonical sum, element by element, in one pass over memory.
///
/// Order   per element exactly `additions`, on every instruction set: no fused multiply-add, no
/// lanes Source  docs/concepts/same_bits.md
#pragma once

#include <cstdint>
#include <span>

#include "lockstep/net/types.h"
#include "lockstep/plan/sum_tree.h"

namespace lockstep::net {

/// Reduces `count` elements. `terms[t]` is slot t of `additions` (plan/sum_tree.h); slot 0 ends up
/// in every one of `results`, which may be terms themselves (not a shifted part of one). Without a
/// term the results are zero. fp16 and bf16 are added in fp32 and rounded once; integers wrap;
/// boolean sum and max are or, min is and; max and min pass a nan on. An average is the sum divided
/// by the number of terms before it is rounded; floating-point types only.
void reduce(DType type, ReduceOp op, std::span<const void* const> terms,
            std::span<const plan::AddStep> additions, std::span<void* const> results,
            int64_t count);

}  // namespace lockstep::net
