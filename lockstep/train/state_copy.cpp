#include "lockstep/train/state_copy.h"

#include <algorithm>

#include "lockstep/train/detail/owned_values.h"

namespace lockstep {
namespace {

/// `see` gets each moment of each piece, and where it begins among all moments.
void for_each_moment(ModelState& state,
                     const std::function<void(float* moment, int64_t at, int64_t count)>& see) {
  const std::vector<plan::Piece>& pieces = state.params().pieces();
  int64_t at = 0;
  for (int kind = 0; kind < plan::traits_of(state.inputs().optimizer).moments; ++kind) {
    for (size_t span = 0; span < pieces.size(); ++span) {
      see(state.optimizer().moment_to_write(kind, span), at, pieces[span].size());
      at += pieces[span].size();
    }
  }
}

}  // namespace

StateCopy::StateCopy(ModelState& state, ParamAverage* average)
    : state_(state),
      average_(average),
      masters_(static_cast<size_t>(detail::owned_numel(state.params()))),
      moments_(masters_ * static_cast<size_t>(plan::traits_of(state.inputs().optimizer).moments)),
      counted_(memory::current_account(), memory::Kind::optimizer,
               static_cast<int64_t>(masters_ + moments_ + (average != nullptr ? masters_ : 0)) * 4),
      values_(masters_ + moments_ + (average != nullptr ? masters_ : 0)) {}

void StateCopy::keep(int64_t steps_done) {
  detail::for_each_owned(state_.params(), [this](const float* master, int64_t at, int64_t count) {
    std::copy_n(master, count, values_.data() + at);
  });
  float* const moments = values_.data() + masters_;
  for_each_moment(state_, [moments](const float* moment, int64_t at, int64_t count) {
    std::copy_n(moment, count, moments + at);
  });
  if (average_ != nullptr) {
    std::copy_n(average_->values().data(), masters_, moments + moments_);
  }
  running_values_.clear();
  for (const NamedTensor& running : state_.running_values()) {
    running_values_.push_back(running.tensor.clone());
  }
  optimizer_steps_ = state_.optimizer().steps_taken();
  steps_done_ = steps_done;
}

void StateCopy::bring_back() {
  detail::for_each_owned(state_.params(), [this](float* master, int64_t at, int64_t count) {
    std::copy_n(values_.data() + at, count, master);
  });
  const float* const moments = values_.data() + masters_;
  for_each_moment(state_, [moments](float* moment, int64_t at, int64_t count) {
    std::copy_n(moments + at, count, moment);
  });
  if (average_ != nullptr) {
    std::copy_n(moments + moments_, masters_, average_->values().data());
  }
  for (size_t i = 0; i < running_values_.size(); ++i) {
    state_.running_values()[i].tensor.copy_(running_values_[i]);
  }
  state_.optimizer().set_steps_taken(optimizer_steps_);
  state_.publish();
}

}  // namespace lockstep
