/// What a rank of a run needs by the plan, and which other settings would need less: what an
/// out-of-memory error tells its reader to do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/plan/param_table.h"
#include "lockstep/plan/state_bytes.h"
#include "lockstep/plan/train_config.h"

namespace lockstep::plan {

struct RankMemory {
  StateBytes state;         // in memory: without what is offloaded
  int64_t staging = 0;      // of offloaded shards on their way
  int64_t activations = 0;  // the peak within a micro-batch; 0 for models that have no such form
  int64_t average = 0;      // of the parameters, with optim.ema
  int64_t copy = 0;         // to go back to, where a policy of run.on_* rewinds
  int64_t checkpoint = 0;   // from which one is written while training goes on
  int64_t total() const {
    return state.total() + staging + activations + average + copy + checkpoint;
  }
};

/// Of a rank of a run with these settings and this step. `counts`: of parts of a model, by
/// parameter, whether no other part saves it (train/model_parts.h); empty: none does.
RankMemory planned_memory(const TrainConfig& config, const StepInputs& inputs, int rank,
                          const std::vector<bool>& counts = {});
/// Of the rank that needs most.
RankMemory planned_memory(const TrainConfig& config, const ParamTable& table, int ranks);

/// Values that data-parallel rank `rank` writes into a checkpoint: its share of masters, moments
/// and moving average, 4 bytes an element of each. Running values of normalised layers, which are
/// no parameters, are rank 0's beside it.
///
///   4 (1 + moments + average) P / N, P trained elements on N ranks, whatever is sharded
int64_t checkpoint_bytes(const TrainConfig& config, const StepInputs& inputs, int rank,
                         const std::vector<bool>& counts = {});

/// Settings that would fit into `limit` bytes, those that change least first:
/// "By the plan this run needs 310 MiB a rank. These fit:\n  --set ... (120 MiB)"...
std::string settings_within(const TrainConfig& config, const ParamTable& table, int ranks,
                            int64_t limit);

}  // namespace lockstep::plan
