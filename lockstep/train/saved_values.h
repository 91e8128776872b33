/// What a rank holds of a run's state, as runs of elements of logical tensors: parameters, the
/// optimizer's moments, the moving average, running values. Checkpoints copy, write and fill by
/// these alone, and know neither shards nor grains nor files of offloaded state.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/part_file.h"
#include "lockstep/train/model_state.h"
#include "lockstep/train/param_average.h"

namespace lockstep {

struct HeldRun {
  std::string kind;
  plan::Param param;  // whose tensor, which may be a grain, it is a run of
  int64_t lo = 0;
  int64_t hi = 0;
  /// No other rank of this replica proves these elements (checkpoint/reader.h).
  bool counts = true;
  /// Its values where they lie; null: in a file.
  float* memory = nullptr;
  std::function<void(int64_t lo, int64_t hi, float* into)> read = {};
  std::function<void(int64_t lo, int64_t hi, const float* from)> write = {};

  int64_t size() const { return hi - lo; }
};

/// All that this rank must be given to go on, by kind. `average` may be null. What the runs point
/// at stays where it is as long as both arguments live.
std::vector<HeldRun> held_runs(ModelState& state, ParamAverage* average,
                               const RankContext& context);
/// The ranks whose runs that count are one whole state; null: this rank alone.
ProcessGroup* holders_of(const RankContext& context);

/// What of it this rank writes: of what several ranks hold, an equal part. The ranks of the world
/// write every element once.
std::vector<HeldRun> written_runs(ModelState& state, ParamAverage* average,
                                  const RankContext& context);

/// The run as a slice of a part file, without its values.
checkpoints::SliceToWrite slice_of(const HeldRun& run);

}  // namespace lockstep
