#include "lockstep/plan/activation_bytes.h"

#include <algorithm>

#include "lockstep/base/assert.h"

namespace lockstep::plan {
namespace {

/// Follows a micro-batch through the operators of models/decoder.cpp and their backward formulas.
/// `take` where a tensor is made, `drop` where its last holder lets it go: for what the graph
/// saves, that is the backward of the operator that saved it. Gradients come in and go out as the
/// engine passes them on: a function's incoming gradient lives until it returns.
class Walk {
 public:
  Walk(const DecoderShape& shape, Recompute recompute)
      : recompute_(recompute),
        layers_(shape.layers),
        width_(shape.width),
        ffn_(shape.ffn),
        vocab_(shape.vocab),
        bias_(shape.bias ? 1 : 0),
        dropout_(shape.dropout),
        tokens_(shape.batch * shape.sequence),
        stream_(tokens_ * shape.width),
        inner_(tokens_ * shape.ffn),
        pairs_(shape.batch * shape.heads * shape.sequence * shape.sequence),
        positions_(shape.sequence * shape.width) {}

  ActivationBytes bytes() {
    ActivationBytes bytes;
    embedding_forward();
    for (int64_t layer = 0; layer < layers_; ++layer) {
      if (recompute_ == Recompute::block) {
        take(stream_);  // its output; the first run's inside is less than the second's
      } else {
        block_forward();
      }
    }
    head_forward();
    bytes.kept = kBytes * alive_;
    head_backward();
    for (int64_t layer = 0; layer < layers_; ++layer) {
      if (recompute_ == Recompute::block) {
        block_forward();
        drop(stream_);  // its output, for the second time
      }
      block_backward();
    }
    embedding_backward();
    drop(2 * tokens_);  // the losses, and what backward started with
    LOCKSTEP_ASSERT(alive_ == 0, "what is taken is dropped");
    bytes.peak = kBytes * peak_;
    return bytes;
  }

 private:
  static constexpr int64_t kBytes = 4;  // of an element

  void take(int64_t elements) { peak_ = std::max(peak_, alive_ += elements); }
  void drop(int64_t elements) { alive_ -= elements; }
  void take_for_a_moment(int64_t elements) {
    take(elements);
    drop(elements);
  }
  /// A tensor gives way to one of its size that is made from it.
  void replace(int64_t elements) { take_for_a_moment(elements); }

  // ---- embedding and head

  void embedding_forward() {
    take(stream_);  // rows of the table
    take(stream_);  // plus positions
    drop(stream_);
    residual_dropout(stream_);
  }

  void embedding_backward() {
    dropout_backward(stream_);
    if (dropout_) drop(stream_);
    take_for_a_moment(2 * positions_);  // summed over the samples, and at its place in the table
    take_for_a_moment(vocab_ * width_);
    drop(stream_);
  }

  /// A norm, logits, their log-softmax (saved, by itself and by the loss), a loss for each token
  /// and the sum of their weights.
  void head_forward() {
    norm_forward();
    take(tokens_ * vocab_);
    take(tokens_ * vocab_);
    take(tokens_ + 1);
    drop(tokens_ * vocab_);
  }

  void head_backward() {
    take(tokens_);           // what backward starts with
    take(tokens_ * vocab_);  // gradient of the log-softmax
    drop(1);
    take(tokens_ * vocab_);  // of the logits
    drop(2 * tokens_ * vocab_);
    take(stream_ + vocab_ * width_);
    drop(tokens_ * vocab_);
    drop(stream_ + vocab_ * width_);
    norm_backward();
  }

  // ---- a block

  void block_forward() {
    norm_forward();
    take(3 * stream_);     // queries, keys and values
    replace(3 * stream_);  // by head; saved
    core_forward();
    if (recompute_ == Recompute::selective) drop(shares());
    replace(stream_);  // by token; saved
    take(stream_);
    residual_dropout(stream_);
    replace(stream_);  // added to the input
    norm_forward();
    take(inner_);  // saved by gelu
    take(inner_);  // saved by c_proj
    take(stream_);
    residual_dropout(stream_);
    replace(stream_);  // added
  }

  /// From the gradient of its output to that of its input, which go on in one tensor: the residual
  /// stream's. A function that recomputes holds the first until it has the second.
  void block_backward() {
    const bool held = recompute_ == Recompute::block;
    dropout_backward(stream_);
    linear_backward(ffn_, width_, /*own=*/dropout_);
    take(inner_);
    drop(2 * inner_);  // gelu's incoming gradient, and its input
    linear_backward(width_, ffn_, /*own=*/true);
    norm_backward();
    if (held) take(stream_);  // else the sum takes its place
    drop(stream_);

    dropout_backward(stream_);
    linear_backward(width_, width_, /*own=*/dropout_);
    replace(stream_);
    core_backward();
    replace(3 * stream_);  // of queries, keys and values: one tensor
    replace(3 * stream_);  // by token
    linear_backward(width_, 3 * width_, /*own=*/true);
    norm_backward();
    drop(stream_);
    if (held) drop(stream_);
  }

  // ---- the core of attention

  /// Scores, softmax, dropout, and the weighted sum, which goes on.
  void core_forward() {
    take(pairs_);
    take(shares());
    take(stream_);
    drop(pairs_);
  }

  /// What its graph saves: the softmax; with dropout the mask and the product too.
  int64_t shares() const { return (dropout_ ? 3 : 1) * pairs_; }

  void core_backward() {
    const bool held = recompute_ == Recompute::selective;
    if (held) {
      core_forward();
      drop(stream_);
    }
    take(pairs_ + stream_);  // gradients of shares and values
    if (!held) drop(stream_);
    if (dropout_) {
      drop(pairs_);  // the product
      take(pairs_);
      drop(2 * pairs_);  // the incoming gradient, the mask
    }
    take(pairs_);
    drop(2 * pairs_);  // softmax: the incoming gradient, its result
    take(stream_);
    take_for_a_moment(stream_);  // times 1 / sqrt(width of a head)
    take(stream_);
    take_for_a_moment(stream_);
    drop(pairs_);
    if (held) {
      take_for_a_moment(stream_);  // the keys' gradient in the order of the keys
      drop(stream_);
    }
    drop(3 * stream_);  // queries, keys and values
  }

  // ---- pieces that come several times

  /// The mask is kept; the product takes the input's place.
  void residual_dropout(int64_t elements) {
    if (!dropout_) return;
    take(2 * elements);
    drop(elements);
  }

  /// The gradient that comes in is the residual stream's, which goes on.
  void dropout_backward(int64_t elements) {
    if (!dropout_) return;
    take(elements);
    drop(elements);  // the mask
  }

  /// The input, mean and deviation are saved. The output is what the next one saves.
  void norm_forward() { take(2 * tokens_ + stream_); }

  void norm_backward() {
    take(stream_);
    take_for_a_moment((1 + bias_) * width_);
    drop(stream_);                // the incoming gradient
    drop(2 * tokens_ + stream_);  // what was saved
  }

  /// The input is saved. `own`: the incoming gradient ends here; else the residual stream has it.
  void linear_backward(int64_t in, int64_t out, bool own) {
    const int64_t of_weights = in * out + bias_ * out;
    take(tokens_ * in + of_weights);
    if (own) drop(tokens_ * out);
    drop(tokens_ * in);
    drop(of_weights);
  }

  Recompute recompute_;
  int64_t layers_;
  int64_t width_;
  int64_t ffn_;
  int64_t vocab_;
  int64_t bias_;
  bool dropout_;
  int64_t tokens_;
  int64_t stream_;     // elements of the residual stream
  int64_t inner_;      // of the feed-forward part
  int64_t pairs_;      // of (query, key), all heads
  int64_t positions_;  // of a sequence's position vectors
  int64_t alive_ = 0;
  int64_t peak_ = 0;
};

}  // namespace

Recompute recompute_of(const std::string& setting) {
  if (setting == "selective") return Recompute::selective;
  return setting == "block" ? Recompute::block : Recompute::none;
}

ActivationBytes decoder_activation_bytes(const DecoderShape& shape, Recompute recompute) {
  return Walk(shape, recompute).bytes();
}

}  // namespace lockstep::plan
