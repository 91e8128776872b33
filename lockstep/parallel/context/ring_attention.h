/// Causal attention over a sequence whose tokens are divided among ranks.
///
/// Keys and values travel round the ring of ranks, a run of grains at a time, while each rank
/// computes with those that are here; a softmax over keys that come bit by bit keeps a running
/// maximum and sum. Backward computes the probabilities again, block by block; the gradients of
/// keys and values travel with them and come home with the last move.
///
///   blocks of half-grains, C = 2 (plan/context_place.h)     . masked inside
///                 keys 0 1 1 0
///     queries 0       .                grain 0 computes the rows 0, grain 1 the rows 1:
///             1       # .              5 blocks each
///             1       # # .
///             0       # # # .
///
/// Moves   forward (S - s) 2 n K floats, backward that and S 2 n K more, for a rank that has s of S
///         tokens; nothing where all grains are here     test: RingAttention.LedgerEqualsThePlan
/// Holds   for backward q, k, v, the result and a number a row, never [S, S]
///                                                       test: RingAttention.KeepsNoProbabilities
///         while it runs three runs of keys and values, in backward two of their gradients
/// Order   plan/ring_steps.h: chains over grains. Products have a block's own shape, so for one C
///         every number of ranks gives the same bits
/// Source  Liu et al. 2023, arXiv:2310.01889 (the ring); Dao et al. 2022, arXiv:2205.14135
///         (backward); Brandon et al. 2023, arXiv:2311.09431 (equal shares);
///         docs/concepts/context.md
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

#include "lockstep/comm/process_group.h"
#include "lockstep/plan/context_place.h"

namespace lockstep::parallel {

/// Who computes which tokens.
struct ContextGroup {
  std::shared_ptr<ProcessGroup> cp;  // null: all grains are here
  plan::ContextPlace place;
};

struct RingOptions {
  /// What products of queries and keys are multiplied with.
  double scale = 1;
  /// What probabilities are multiplied with (dropout: 0 or 1 / (1 - p)): [n, G, queries, keys] for
  /// these positions of the sequence. Called in forward and again in backward, where it must give
  /// the same values. Empty: nothing.
  std::function<at::Tensor(plan::TokenRange queries, plan::TokenRange keys)> keep;
};

/// Attention of the c grains that this rank has, in rising order. All ranks of the group call it,
/// and backward through it, alike.
///
/// q        [c, n, G, s, K] float32: n = samples x heads of keys, G queries for each of them, and
/// the
///          s = S / C tokens of a grain, its low half first
/// k, v     [c, n, s, K]
/// returns  [c, n, G, s, K]
/// throws   UsageError: shapes or types that do not fit, found before any byte is sent; what keep
///          gives, found in the first block
at::Tensor ring_attention(const ContextGroup& group, const at::Tensor& q, const at::Tensor& k,
                          const at::Tensor& v, const RingOptions& options);

}  // namespace lockstep::parallel
