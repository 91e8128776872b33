/// Faults that a test plants on purpose, to see that verification finds them: what goes wrong in
/// other systems when a layout is wrong. None is planted unless a test asks for one, by name, on
/// the ranks of one job (`lockstep verify --plant NAME`).
#pragma once

#include <array>
#include <atomic>
#include <string>
#include <string_view>

namespace lockstep::base {

enum class Fault {
  none,
  skipped_reduction,
  wrong_divisor,
  rescaled_accumulation,
  dropped_micro_batch,
  lost_leaf,
  leaf_order,
  wrong_samples,
  gradients_kept,
  swapped_shards,
  unpublished_shard,
  lost_shard,
  own_norm,
  norm_counts_twice,
  untied_head,
  tied_twice,
  wrong_start_values,
  no_decay,
  wrong_step_count,
  reused_send_buffer,
  swapped_micro_batches,
  lost_input_gradient,
  dropped_weight_gradient,
  doubled_weight_gradient,
  forgotten_sample_key,
  same_heads_everywhere,
  bias_on_each_rank,
  skipped_forward_sum,
  skipped_backward_sum,
  missing_norm_sum,
  bias_of_local_tokens,
  local_positions,
  local_targets,
  local_softmax,
  same_context_positions,
  skipped_visitor,
  gradients_not_home,
  lost_context_grain,
};

struct FaultName {
  Fault fault;
  const char* name;
  const char* what;
};

inline constexpr std::array kFaults = {
    FaultName{Fault::skipped_reduction, "skipped-reduction",
              "the first bucket's gradients stay those of the rank"},
    FaultName{Fault::wrong_divisor, "wrong-divisor",
              "the loss is divided by the rank's own leaves"},
    FaultName{Fault::rescaled_accumulation, "rescaled-accumulation",
              "what has accumulated is halved at each further micro-batch"},
    FaultName{Fault::dropped_micro_batch, "dropped-micro-batch",
              "the last micro-batch of a rank's step has no backward"},
    FaultName{Fault::lost_leaf, "lost-leaf", "a leaf does not join its rank's partial sum"},
    FaultName{Fault::leaf_order, "leaf-order", "leaves are added in another order"},
    FaultName{Fault::wrong_samples, "wrong-samples",
              "a rank computes its first micro-batch again and again"},
    FaultName{Fault::gradients_kept, "gradients-kept", "a step begins with the gradients before"},
    FaultName{Fault::swapped_shards, "swapped-shards",
              "a rank publishes the values beside its own shard"},
    FaultName{Fault::unpublished_shard, "unpublished-shard",
              "a bucket's updated parameters reach nobody"},
    FaultName{Fault::lost_shard, "lost-shard",
              "a gathered unit has zeros in the place of other ranks' shards"},
    FaultName{Fault::own_norm, "own-norm", "the gradient's norm is of the rank's own part"},
    FaultName{Fault::norm_counts_twice, "norm-counts-twice",
              "a parameter that several ranks hold counts twice in the norm"},
    FaultName{Fault::untied_head, "untied-head",
              "the head's gradient does not reach the embedding"},
    FaultName{Fault::tied_twice, "tied-twice", "the uses of a tied parameter are added twice"},
    FaultName{Fault::wrong_start_values, "wrong-start-values",
              "a rank draws its parameters by their place on it"},
    FaultName{Fault::no_decay, "no-decay", "a rank's matrices do not decay"},
    FaultName{Fault::wrong_step_count, "wrong-step-count",
              "a rank's moments are corrected for one step more"},
    FaultName{Fault::reused_send_buffer, "reused-send-buffer",
              "an activation is overwritten before it has gone"},
    FaultName{Fault::swapped_micro_batches, "swapped-micro-batches",
              "a stage takes one micro-batch's activation for the next one's"},
    FaultName{Fault::lost_input_gradient, "lost-input-gradient",
              "a stage sends zeros back in the place of its input's gradient"},
    FaultName{Fault::dropped_weight_gradient, "dropped-weight-gradient",
              "a weight gradient that was put off is forgotten"},
    FaultName{Fault::doubled_weight_gradient, "doubled-weight-gradient",
              "a weight gradient that was put off is added twice"},
    FaultName{Fault::forgotten_sample_key, "forgotten-sample-key",
              "dropout is drawn without the sample's number in the step"},
    FaultName{Fault::same_heads_everywhere, "same-heads-everywhere",
              "attention dropout is drawn by the head's number on its rank"},
    FaultName{Fault::bias_on_each_rank, "bias-on-each-rank",
              "each tensor rank adds the bias before the sum"},
    FaultName{Fault::skipped_forward_sum, "skipped-forward-sum",
              "a row-parallel layer gives the rank's own part"},
    FaultName{Fault::skipped_backward_sum, "skipped-backward-sum",
              "a column-parallel layer's input gradient is the rank's own part"},
    FaultName{Fault::missing_norm_sum, "missing-norm-sum",
              "a norm's gain sums over the rank's own slices of the sequence"},
    FaultName{Fault::bias_of_local_tokens, "bias-of-local-tokens",
              "a bias sums over the rank's own slices of the sequence"},
    FaultName{Fault::local_positions, "local-positions",
              "each slice of the sequence begins at position 0"},
    FaultName{Fault::local_targets, "local-targets",
              "a vocabulary grain takes target ids for its own rows"},
    FaultName{Fault::local_softmax, "local-softmax",
              "the softmax is over the rank's own part of the vocabulary"},
    FaultName{Fault::same_context_positions, "same-context-positions",
              "every context grain has the positions of the first"},
    FaultName{Fault::skipped_visitor, "skipped-visitor",
              "the keys of the neighbour on the ring are not attended to"},
    FaultName{Fault::gradients_not_home, "gradients-not-home",
              "what other ranks add to the gradients of keys and values is lost"},
    FaultName{Fault::lost_context_grain, "lost-context-grain",
              "a context grain's gradients do not join the sum"},
};

inline std::atomic<Fault> planted_fault = Fault::none;

inline bool planted(Fault fault) { return planted_fault.load(std::memory_order_relaxed) == fault; }

/// Fault::none for a name that is not there.
inline Fault fault_named(std::string_view name) {
  for (const FaultName& known : kFaults) {
    if (name == known.name) return known.fault;
  }
  return Fault::none;
}

}  // namespace lockstep::base
