#include "lockstep/plan/detail/activation_walk.h"

#include <algorithm>

#include "lockstep/base/assert.h"

namespace lockstep::plan::detail {

ActivationWalk::ActivationWalk(const DecoderShape& shape, Recompute recompute)
    : shape_(shape),
      recompute_(recompute),
      tokens_(shape.batch * shape.sequence),
      row_(kFloat * tokens_),
      stream_(row_ * shape.width),
      inner_(row_ * shape.ffn),
      logits_(row_ * shape.vocab),
      table_(kFloat * shape.vocab * shape.width),
      positions_(kFloat * shape.sequence * shape.width),
      norm_gradients_(kFloat * (shape.bias ? 2 : 1) * shape.width) {}

ActivationBytes ActivationWalk::bytes() {
  ActivationBytes bytes;
  embedding_forward();
  for (int64_t layer = 0; layer < shape_.layers; ++layer) {
    if (recompute_ == Recompute::block) {
      take(stream_);  // its output; the first run's inside is less than the second's
    } else {
      block_forward();
    }
  }
  head_forward();
  bytes.kept = alive_;
  take(row_);  // what backward starts with
  head_backward();
  for (int64_t layer = 0; layer < shape_.layers; ++layer) {
    if (recompute_ == Recompute::block) {
      block_forward();
      drop(stream_);  // its output, for the second time
    }
    block_backward();
  }
  embedding_backward();
  drop(2 * row_);  // the losses, and what backward started with
  LOCKSTEP_ASSERT(alive_ == 0, "what is taken is dropped");
  bytes.peak = peak_;
  return bytes;
}

void ActivationWalk::take(int64_t bytes) { peak_ = std::max(peak_, alive_ += bytes); }

void ActivationWalk::take_for_a_moment(int64_t bytes) {
  take(bytes);
  drop(bytes);
}

void ActivationWalk::residual_dropout() {
  if (shape_.dropout) replace(stream_);
}

void ActivationWalk::residual_dropout_backward() {
  if (shape_.dropout) take(stream_);
}

void ActivationWalk::norm_backward() {
  take(stream_);
  take_for_a_moment(norm_gradients_);
  drop(stream_);             // the incoming gradient
  drop(2 * row_ + stream_);  // what was saved
}

void ActivationWalk::cross_entropy_forward() {
  take(logits_);
  take(row_ + kFloat);
  drop(logits_);
}

void ActivationWalk::cross_entropy_backward() {
  take(logits_);  // gradient of the log-softmax
  drop(kFloat);
  take(logits_);
  drop(2 * logits_);
}

}  // namespace lockstep::plan::detail
