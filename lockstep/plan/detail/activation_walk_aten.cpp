#include "lockstep/plan/detail/activation_walk.h"

namespace lockstep::plan::detail {
namespace {

/// By LibTorch's operators, in fp32.
class AtenWalk final : public ActivationWalk {
 public:
  AtenWalk(const DecoderShape& shape, Recompute recompute)
      : ActivationWalk(shape, recompute), pairs_(row_ * shape.heads * shape.sequence) {}

 private:
  void embedding_forward() override {
    take(stream_);  // rows of the table
    take(stream_);  // plus positions
    drop(stream_);
    residual_dropout();
  }

  void embedding_backward() override {
    residual_dropout_backward();
    if (shape_.dropout) drop(stream_);
    take_for_a_moment(2 * positions_);  // summed over the samples, and at its place in the table
    take_for_a_moment(table_);
    drop(stream_);
  }

  void head_forward() override {
    norm_forward();
    take(logits_);
    cross_entropy_forward();
  }

  void head_backward() override {
    cross_entropy_backward();
    linear_backward(shape_.width, shape_.vocab, /*own=*/true, /*biased=*/false);
    norm_backward();
  }

  void block_forward() override {
    norm_forward();
    take(3 * stream_);     // queries, keys and values
    replace(3 * stream_);  // by head; saved
    core_forward();
    if (recompute_ == Recompute::selective) drop(shares());
    replace(stream_);  // by token; saved
    take(stream_);
    residual_dropout();
    replace(stream_);  // added to the input
    norm_forward();
    take(inner_);  // saved by gelu
    take(inner_);  // saved by c_proj
    take(stream_);
    residual_dropout();
    replace(stream_);  // added
  }

  void block_backward() override {
    const bool held = recompute_ == Recompute::block;
    residual_dropout_backward();
    linear_backward(shape_.ffn, shape_.width, /*own=*/shape_.dropout, shape_.bias);
    take(inner_);
    drop(2 * inner_);  // gelu's incoming gradient, and its input
    linear_backward(shape_.width, shape_.ffn, /*own=*/true, shape_.bias);
    norm_backward();
    if (held) take(stream_);  // else the sum takes its place
    drop(stream_);

    residual_dropout_backward();
    linear_backward(shape_.width, shape_.width, /*own=*/shape_.dropout, shape_.bias);
    replace(stream_);
    core_backward();
    replace(3 * stream_);  // of queries, keys and values: one tensor
    replace(3 * stream_);  // by token
    linear_backward(shape_.width, 3 * shape_.width, /*own=*/true, shape_.bias);
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

  /// What its graph saves: the softmax; with dropout the product too.
  int64_t shares() const { return (shape_.dropout ? 2 : 1) * pairs_; }

  void core_backward() {
    const bool held = recompute_ == Recompute::selective;
    if (held) {
      core_forward();
      drop(stream_);
    }
    take(pairs_ + stream_);  // gradients of shares and values
    if (!held) drop(stream_);
    if (shape_.dropout) {
      drop(pairs_);  // the product
      replace(pairs_);
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

  /// The input is saved. `own`: the incoming gradient ends here; else the residual stream has it.
  void linear_backward(int64_t in, int64_t out, bool own, bool biased) {
    const int64_t of_weights = kFloat * (in * out + (biased ? out : 0));
    take(row_ * in + of_weights);
    if (own) drop(row_ * out);
    drop(row_ * in);
    drop(of_weights);
  }

  const int64_t pairs_;  // of (query, key), all heads
};

}  // namespace

ActivationBytes aten_activation_bytes(const DecoderShape& shape, Recompute recompute) {
  return AtenWalk(shape, recompute).bytes();
}

}  // namespace lockstep::plan::detail
