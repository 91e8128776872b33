/// The learning rate of each step: linear warmup, then cosine, linear or no decay.
/// Source  Goyal et al. 2017, arXiv:1706.02677 (warmup); Loshchilov and Hutter 2017 (cosine)
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

}  // namespace lockstep::optim
