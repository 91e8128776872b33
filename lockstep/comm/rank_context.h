/// Who this rank is and what it is computing: passed as an argument wherever that matters.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "lockstep/base/counter_random.h"
#include "lockstep/base/planted_fault.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/weight_queue.h"
#include "lockstep/plan/compute_type.h"
#include "lockstep/plan/context_place.h"
#include "lockstep/plan/tensor_place.h"

namespace lockstep {

struct RankContext {
  std::shared_ptr<ProcessGroup> world;  // all ranks
  std::shared_ptr<ProcessGroup> dp;     // the replicas of this rank's part of the model
  // Of dp, where its ranks divide state; else null.
  std::shared_ptr<ProcessGroup> shard;    // those that divide one replica: gradients
  std::shared_ptr<ProcessGroup> gather;   // the same ranks: parameters, beside the gradients
  std::shared_ptr<ProcessGroup> replica;  // those that hold the same shards
  // Of a model that is itself divided; else null.
  std::shared_ptr<ProcessGroup> tp;     // the grains of this rank's layers
  std::shared_ptr<ProcessGroup> cp;     // the grains of its sequences
  std::shared_ptr<ProcessGroup> model;  // all that together hold a replica: norms
  std::shared_ptr<ProcessGroup> all;    // every rank: losses
  std::shared_ptr<ProcessGroup> tie;    // first and last stage: uses of a tied parameter
  /// The ranks of dp, for comparisons that are no part of steps; the world where it is the same.
  std::shared_ptr<ProcessGroup> peers;
  int part = 0;  // of the model, that this rank holds
  plan::TensorPlace tensor = {};
  plan::ContextPlace sequence = {};  // the grains of each sequence that this rank computes
  /// Where Lockstep's linear layers leave their weights' gradients; null: backward computes them.
  std::shared_ptr<WeightQueue> weight_queue;
  /// Told what each layer gives, if somebody wants to compare runs (train/witness_recorder.h).
  std::function<void(std::string_view layer, const at::Tensor& x)> see_activation = {};
  plan::Arithmetic arithmetic = {};  // of Lockstep's layers
  uint64_t seed = 0;
  bool training = true;  // dropout is active

  int64_t step = 0;
  int leaf = 0;
  int micro = 0;
  int64_t first_sample = 0;  // index in the step of the micro-batch's first sample

  /// The key of draws for `purpose` in `layer`, for one sample of the micro-batch at hand. The
  /// counter is the element's index in the logical tensor of that sample.
  base::RandomKey sample_key(std::string_view layer, std::string_view purpose,
                             int64_t sample_of_micro_batch) const {
    return base::RandomKey(seed)
        .with(static_cast<uint64_t>(step))
        .with(static_cast<uint64_t>(
            sample_of_micro_batch +
            (base::planted(base::Fault::forgotten_sample_key) ? 0 : first_sample)))
        .with(layer)
        .with(purpose);
  }
};

}  // namespace lockstep
