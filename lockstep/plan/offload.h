/// What of a rank's state lives in a file while it is not at work.
#pragma once

#include "lockstep/plan/train_config.h"

namespace lockstep::plan {

struct Offload {
  bool parameters = false;   // this rank's shards; with zero3
  bool optimizer = false;    // moments
  bool activations = false;  // what autograd saves for backward
  bool any() const { return parameters || optimizer || activations; }
};

/// Of memory.offload and memory.offload_kinds. Throws UsageError: a kind that is none, or that the
/// sharding leaves nothing of; kinds without memory.offload.
Offload offload_of(const TrainConfig& config);

/// How an optimizer's state in a file passes through memory: blocks of so many elements.
struct StreamBlocks {
  int64_t elements = 0;  // a multiple of 1024
  int blocks = 6;
};
/// Large blocks; those of a small shard take no more than an eighth of it.
StreamBlocks stream_blocks(int64_t elements);
/// What the blocks hold: moments, and masters if they are in the file, too.
int64_t streamed_bytes(int64_t elements, bool with_masters);

}  // namespace lockstep::plan
