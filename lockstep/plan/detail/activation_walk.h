/// What follows a micro-batch through the operators of models/decoder.cpp and their backward
/// formulas, and counts bytes. `take` where a tensor is made, `drop` where its last holder lets it
/// go: for what the graph saves, that is the backward of the operator that saved it. Gradients come
/// in and go out as the engine passes them on: a function's incoming gradient lives until it
/// returns.
#pragma once

#include <cstdint>

#include "lockstep/plan/activation_bytes.h"

namespace lockstep::plan::detail {

inline constexpr int64_t kFloat = 4;  // bytes

/// A walk says what the pieces take and drop; this one has their order, and what is alike.
class ActivationWalk {
 public:
  ActivationWalk(const DecoderShape& shape, Recompute recompute);
  virtual ~ActivationWalk() = default;
  ActivationWalk(const ActivationWalk&) = delete;
  ActivationWalk& operator=(const ActivationWalk&) = delete;

  ActivationBytes bytes();

 protected:
  virtual void embedding_forward() = 0;
  virtual void head_forward() = 0;
  virtual void head_backward() = 0;
  virtual void block_forward() = 0;
  /// From the gradient of its output to that of its input, which go on in one tensor: the residual
  /// stream's. A function that recomputes holds the first until it has the second.
  virtual void block_backward() = 0;
  virtual void embedding_backward() = 0;

  void take(int64_t bytes);
  void drop(int64_t bytes) { alive_ -= bytes; }
  void take_for_a_moment(int64_t bytes);
  /// A tensor gives way to one of its size that is made from it.
  void replace(int64_t bytes) { take_for_a_moment(bytes); }

  /// The factors are drawn again in backward; their product takes the input's place.
  void residual_dropout();
  /// The gradient that comes in is the residual stream's, which goes on.
  void residual_dropout_backward();

  /// The input, mean and deviation are saved. The output is what the next one saves.
  void norm_forward() { take(2 * row_ + stream_); }
  void norm_backward();

  /// Logits as a matrix of all tokens, their log-softmax (saved, by itself and by the loss), a loss
  /// for each token and the sum of their weights.
  void cross_entropy_forward();
  /// To the gradient of the logits.
  void cross_entropy_backward();

  // Bytes in fp32, but for what says otherwise.
  const DecoderShape shape_;
  const Recompute recompute_;
  const int64_t tokens_;  // their number
  const int64_t row_;     // a number for each token
  const int64_t stream_;  // the residual stream
  const int64_t inner_;   // the feed-forward part
  const int64_t logits_;
  const int64_t table_;      // an embedding, or the head's weight
  const int64_t positions_;  // of a sequence
  const int64_t norm_gradients_;

 private:
  int64_t alive_ = 0;
  int64_t peak_ = 0;
};

ActivationBytes aten_activation_bytes(const DecoderShape& shape, Recompute recompute);
ActivationBytes fused_activation_bytes(const DecoderShape& shape, Recompute recompute);

/// Of kernels/attention.h and kernels/token_loss.h, in bytes.
int64_t attention_scratch_bytes(const DecoderShape& shape);
int64_t token_loss_scratch_bytes(const DecoderShape& shape);

}  // namespace lockstep::plan::detail
