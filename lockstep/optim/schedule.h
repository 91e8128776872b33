/// The learning rate of each step: linear warmup, then cosine, linear or no decay; and how the rate
/// grows with the batch.
/// Source  Goyal et al. 2017, arXiv:1706.02677 (warmup); Loshchilov and Hutter 2017 (cosine);
///         Goyal et al. 2017 (linear scaling with the batch); Krizhevsky 2014, arXiv:1404.5997,
///         and Hoffer et al. 2017, arXiv:1705.08741 (square root)
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::optim {

enum class Decay { cosine, linear, constant };

struct Schedule {
  double peak = 0;
  int64_t warmup_steps = 0;
  int64_t steps = 0;  // of the run
  Decay decay = Decay::cosine;
  double min_ratio = 0.1;  // of the peak, reached at the last step
};

/// Throws UsageError naming field and value: no peak above 0, a negative warmup, no steps, a ratio
/// outside [0, 1].
void check(const Schedule& schedule);

/// Step counts from 0. Warmup step s has peak * (s + 1) / warmup_steps, so the last warmup step has
/// the peak; warmup 0 starts at the peak; a warmup as long as the run or longer is legal. The last
/// step of the run has min_ratio * peak (cosine, linear); decay starts from the last warmup step.
/// Past the end the rate stays what it was. Equal bits on every machine. Throws as `check` does.
double learning_rate(const Schedule& schedule, int64_t step);

Decay decay_of(const std::string& name);  // throws UsageError

enum class BatchScaling { none, linear, sqrt };

/// The rate for `global_batch` samples a step where `lr` was found for `base_batch`: lr times
/// their ratio, or its root. 256 -> 1024 at 0.1: 0.4 or 0.2. Throws UsageError naming field and
/// value: a scaling without a base_batch above 0, or no samples.
double scaled_rate(double lr, int64_t base_batch, int64_t global_batch, BatchScaling scaling);

BatchScaling batch_scaling_of(const std::string& name);  // throws UsageError

}  // namespace lockstep::optim
