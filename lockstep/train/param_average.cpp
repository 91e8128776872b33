#include "lockstep/train/param_average.h"

#include <algorithm>

#include "lockstep/kernels/average.h"
#include "lockstep/train/detail/owned_values.h"

namespace lockstep {

ParamAverage::ParamAverage(ModelState& state, double decay)
    : state_(state),
      decay_(decay),
      counted_(memory::current_account(), memory::Kind::optimizer,
               detail::owned_numel(state.params()) * 4),
      values_(static_cast<size_t>(detail::owned_numel(state.params()))) {
  detail::for_each_owned(state_.params(), [this](float* master, int64_t at, int64_t count) {
    std::copy_n(master, count, values_.data() + at);
  });
}

void ParamAverage::update() {
  detail::for_each_owned(state_.params(), [this](const float* master, int64_t at, int64_t count) {
    kernels::moving_average(values_.data() + at, master, count, decay_);
  });
}

void ParamAverage::swap() {
  detail::for_each_owned(state_.params(), [this](float* master, int64_t at, int64_t count) {
    kernels::swap_spans(values_.data() + at, master, count);
  });
  state_.publish();
}

}  // namespace lockstep
