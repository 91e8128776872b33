/// Rotary positions: pairs of a head's features are turned by an angle that grows with the token's
/// position, so products of queries and keys depend on distances alone.
///
///   (a, b) at feature pair i, position p  ->  (a cos - b sin, b cos + a sin) of p theta^(-2i/K)
///
/// Feature i is paired with i + K/2, as in the checkpoints of LLaMA in Hugging Face's layout.
/// Holds   nothing for backward, which turns back
/// Source  Su et al. 2021, "RoFormer", arXiv:2104.09864
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::models {

struct RotaryTable {
  at::Tensor cos;  // [S, K/2]
  at::Tensor sin;
};

/// Of positions 0 to `length` - 1 and heads `head` wide, computed in fp64.
RotaryTable rotary_table(int64_t length, int64_t head, double theta);

/// x [Z, S, K], contiguous.
at::Tensor rotate(const at::Tensor& x, const RotaryTable& table);

}  // namespace lockstep::models
