/// Bytes that a tensor group moves for one micro-batch of a decoder, by rank, as its ledger counts.
///
///   of [T, B, S/T, D] activations       forward                    backward
///     embedding                         all-reduce                 -
///     a layer                           2 all-reduces              2 all-reduces
///     head                              -                          all-reduce
///     loss, of N = B S tokens           maxima [N], sums [2, N]    -
///   with sequence parallelism
///     embedding                         reduce-scatter             all-gather; positions [S, D]
///     a layer                           2 all-gathers,             2 all-gathers,
///                                       2 reduce-scatters          2 reduce-scatters
///     head                              all-gather                 reduce-scatter
///     loss                              the same                   -
///     a norm                            -                          all-reduce of gain and bias
///
/// For t ranks with one whole subtree of grains each, a layer moves 8 (t-1)/t B S D elements either
/// way; 10 (t-1)/t where the gathered inputs of column-parallel layers are not kept. Recompute of
/// blocks moves the forward of the layers once more. Where head and loss are one function, its
/// all-reduce (reduce-scatter) is a part of forward, where there is a graph.
///
/// Source  Shoeybi et al. 2019, arXiv:1909.08053; Korthikanti et al. 2022, arXiv:2205.05198,
///         section 4.2;  docs/concepts/tensor.md, docs/concepts/sequence.md
#pragma once

#include <cstdint>

#include "lockstep/plan/tensor_place.h"

namespace lockstep::plan {

/// What a rank computes of a decoder.
struct TensorShape {
  int64_t batch = 0;     // sequences of a micro-batch
  int64_t sequence = 0;  // tokens
  int64_t width = 0;
  int64_t layers = 0;
  bool embeds = true;
  bool heads = true;
  bool positions = true;          // a table of learned ones
  bool norm_bias = true;          // else a norm has a gain alone
  bool gather_again = false;      // with sequence parallelism
  bool recompute_blocks = false;  // memory.recompute = block
  /// Head and loss are one function, whose maxima and sums meet for so many tokens at a time; 0:
  /// they are two.
  int64_t loss_rows = 0;
};

struct TensorBytes {
  int64_t forward = 0;
  int64_t backward = 0;
  bool operator==(const TensorBytes&) const = default;
};

/// Of the rank whose place it is: bytes of peers' memory that it reads and writes.
TensorBytes tensor_bytes(const TensorShape& shape, const TensorPlace& place);

}  // namespace lockstep::plan
