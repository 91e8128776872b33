#include "lockstep/plan/detail/activation_walk.h"

#include <algorithm>

#include "lockstep/base/assert.h"

namespace lockstep::plan::detail {
namespace {

/// By Lockstep's kernels. What products read is fp32 as it is, or a copy in the type of the run:
/// in bf16 of half the bytes, in emulated fp16 of all of them. Of weights the copy lasts for one
/// product, of an input from forward to backward.
class FusedWalk final : public ActivationWalk {
 public:
  FusedWalk(const DecoderShape& shape, Recompute recompute)
      : ActivationWalk(shape, recompute),
        copies_(shape.compute != ComputeType::fp32),
        log_sums_(row_ * shape.heads),
        attention_scratch_(attention_scratch_bytes(shape)),
        loss_scratch_(token_loss_scratch_bytes(shape)) {}

 private:
  void embedding_forward() override {
    take(stream_);
    residual_dropout();
  }

  void embedding_backward() override {
    residual_dropout_backward();
    if (shape_.dropout) drop(stream_);
    take(table_ + positions_);
    drop(stream_ + table_);
    take_for_a_moment(positions_);  // at their place in the table
    drop(positions_);
  }

  /// In fp16 the logits' gradients are rounded, so there is a matrix of them.
  bool head_in_one() const { return shape_.compute != ComputeType::fp16; }

  void head_forward() override {
    norm_forward();
    if (!head_in_one()) {
      linear_forward(shape_.width, shape_.vocab);
      drop(stream_);
      cross_entropy_forward();
      return;
    }
    if (copies_) take(operand(stream_));
    take(row_);
    take_operand(table_);
    take(stream_ + table_);  // gradients of input and weight, which are kept
    take_for_a_moment(loss_scratch_);
    drop_operand(table_);
    if (copies_) drop(stream_);
  }

  void head_backward() override {
    if (head_in_one()) {
      drop(operand(stream_));
      drop(table_);
    } else {
      cross_entropy_backward();
      linear_backward(shape_.width, shape_.vocab, /*own=*/true, /*biased=*/false);
    }
    norm_backward();
  }

  void block_forward() override {
    norm_forward();
    linear_forward(shape_.width, 3 * shape_.width);  // queries, keys and values; saved
    if (copies_) drop(stream_);
    take(stream_ + log_sums_);  // saved
    take_for_a_moment(attention_scratch_);
    linear_forward(shape_.width, shape_.width);
    residual_dropout();
    take(stream_);  // added to the input; saved
    norm_forward();
    drop(stream_);                             // the branch; `norm_forward` took the sum
    linear_forward(shape_.width, shape_.ffn);  // saved by gelu
    if (copies_) drop(stream_);
    take(inner_);
    linear_forward(shape_.ffn, shape_.width);
    if (copies_) drop(inner_);
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
    if (!held) drop(stream_);  // the stream's gradient is in the sum

    residual_dropout_backward();
    linear_backward(shape_.width, shape_.width, /*own=*/shape_.dropout, shape_.bias);
    if (!copies_) take(stream_);  // what it saved is attention's result, which is there still
    attention_backward();
    linear_backward(shape_.width, 3 * shape_.width, /*own=*/true, shape_.bias);
    norm_backward();
    drop(stream_);
    if (held) drop(stream_);
  }

  void attention_backward() {
    take(3 * stream_);
    take_for_a_moment(attention_scratch_);
    drop(stream_);                            // the incoming gradient
    drop(3 * stream_ + stream_ + log_sums_);  // what was saved
  }

  // ---- products

  /// Bytes of what products read, of so many in fp32.
  int64_t operand(int64_t bytes) const {
    return shape_.compute == ComputeType::bf16 ? bytes / 2 : bytes;
  }
  void take_operand(int64_t bytes) {
    if (copies_) take(operand(bytes));
  }
  void drop_operand(int64_t bytes) {
    if (copies_) drop(operand(bytes));
  }

  void linear_forward(int64_t in, int64_t out) {
    take_operand(row_ * in);  // saved
    take_operand(kFloat * in * out);
    take(row_ * out);
    drop_operand(kFloat * in * out);
  }

  /// The input is saved. `own`: the incoming gradient ends here; else the residual stream has it.
  void linear_backward(int64_t in, int64_t out, bool own, bool biased) {
    const int64_t of_weights = kFloat * (in * out + (biased ? out : 0));
    take_operand(row_ * out);
    take_operand(kFloat * in * out);
    take(row_ * in);
    drop_operand(kFloat * in * out);
    take(of_weights);
    drop_operand(row_ * out);
    if (own) drop(row_ * out);
    drop(operand(row_ * in));
    drop(of_weights);
  }

  const bool copies_;  // products read copies
  const int64_t log_sums_;
  const int64_t attention_scratch_;
  const int64_t loss_scratch_;
};

}  // namespace

ActivationBytes fused_activation_bytes(const DecoderShape& shape, Recompute recompute) {
  LOCKSTEP_ASSERT(recompute != Recompute::selective, "the fused attention keeps no scores");
  return FusedWalk(shape, recompute).bytes();
}

int64_t attention_scratch_bytes(const DecoderShape& shape) {
  constexpr int64_t kQueries = 64;
  const auto lines = [](int64_t count) { return kFloat * ((count + 15) / 16 * 16); };
  const auto with_rounded = [&](int64_t count) { return lines(count) + lines((count + 1) / 2); };
  const int64_t head = shape.sequence * (shape.width / shape.heads);
  const int64_t scores = kQueries * shape.sequence;
  // q, k, v, the gradient of the result; scores and their gradient, the mask; and in fp32 dq, dk,
  // dv, the result.
  return 4 * with_rounded(head) + 2 * with_rounded(scores) + lines(scores) + 4 * lines(head);
}

int64_t token_loss_scratch_bytes(const DecoderShape& shape) {
  constexpr int64_t kRows = 512, kColumns = 1024;
  const int64_t rows = std::min(kRows, shape.batch * shape.sequence);
  const int64_t tile = rows * std::min(kColumns, shape.vocab);
  const int64_t rounded = shape.compute == ComputeType::bf16 ? (tile + 1) / 2 : 0;
  return kFloat * (rows * shape.vocab + rounded + 4 * rows);
}

}  // namespace lockstep::plan::detail
