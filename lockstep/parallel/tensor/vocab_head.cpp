#include "lockstep/parallel/tensor/vocab_head.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/planted_fault.h"
#include "lockstep/base/str.h"
#include "lockstep/fused/token_loss.h"
#include "lockstep/kernels/span.h"
#include "lockstep/kernels/token_loss.h"
#include "lockstep/parallel/tensor/detail/layer_inputs.h"
#include "lockstep/parallel/tensor/detail/vocab_columns.h"
#include "lockstep/parallel/tensor/linear.h"
#include "lockstep/parallel/tensor/vocab_cross_entropy.h"
#include "lockstep/torch_inside/first_touch.h"
#include "lockstep/torch_inside/gemm_counter.h"
#include "lockstep/torch_inside/kept.h"
#include "lockstep/torch_inside/own_operator.h"

namespace lockstep::parallel {
namespace {

using detail::rows_of;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Head {
  TensorGroup group;
  std::vector<at::Tensor> weights;
  at::Tensor targets;  // [N]
  int64_t vocab = 0;
  bool wants_dx = false;
  bool wants_dw = false;
  bool deferred = false;  // weight gradients go to the queue

  detail::VocabColumns columns() const { return {group.place.local.lo, vocab, weights[0].size(0)}; }
};

/// A forward, block by block.
class Blocks {
 public:
  Blocks(const Head& head, const at::Tensor& x_ND, const float* row_weights)
      : head_(head), columns_(head.columns()), x_(x_ND), row_weights_(row_weights) {
    const fused::Arithmetic& arithmetic = head.group.arithmetic;
    type_ = fused::operand_type(x_);
    int64_t scratch = 0;
    for (size_t i = 0; i < head.weights.size(); ++i) {
      weights_.push_back(fused::operand(arithmetic, head.weights[i]));
      offsets_.push_back(scratch);
      scratch += kernels::loss_block_scratch(type_, std::min(kernels::kLossRows, rows()),
                                             columns_.real(i));
      if (head.wants_dx) dx_.push_back(at::empty({rows(), width()}, at::kFloat));
      if (head.wants_dw) dw_.push_back(at::zeros({columns_.of_grain, width()}, at::kFloat));
    }
    scratch_ = at::empty({scratch}, at::kFloat);
  }

  at::Tensor losses() {
    at::Tensor losses = at::empty({rows()}, at::kFloat);
    for (int64_t r = 0; r < rows(); r += kernels::kLossRows) {
      run_block(r, std::min(kernels::kLossRows, rows() - r), losses.data_ptr<float>() + r);
    }
    return losses;
  }

  std::vector<at::Tensor> take_dx() { return std::move(dx_); }
  std::vector<at::Tensor> take_dw() { return std::move(dw_); }

 private:
  int64_t rows() const { return x_.size(0); }
  int64_t width() const { return x_.size(1); }

  kernels::LossBlock block_of(size_t i, int64_t r, int64_t m) const {
    return {.type = type_,
            .rows = m,
            .width = width(),
            .columns = columns_.real(i),
            .x = static_cast<const char*>(x_.data_ptr()) +
                 r * width() * static_cast<int64_t>(x_.element_size()),
            .w = weights_[i].data_ptr(),
            .scratch = scratch_.data_ptr<float>() + offsets_[i]};
  }

  void run_block(int64_t r, int64_t m, float* losses) {
    const TensorGroup& group = head_.group;
    at::Tensor most = at::full({m}, -std::numeric_limits<float>::infinity(), at::kFloat);
    for (size_t i = 0; i < weights_.size(); ++i) {
      torch_inside::touch_for_reading({weights_[i]});
      kernels::block_logits(block_of(i, r, m), most.data_ptr<float>());
    }
    if (group.tp != nullptr) group.tp->all_reduce(most, ReduceOp::max).wait();

    const int first_grain = group.place.local.lo;
    const auto part = [&](int grain) {
      const auto i = static_cast<size_t>(grain - first_grain);
      const std::vector<int64_t> columns = columns_of(i, r, m);
      at::Tensor sums = at::zeros({2, m}, at::kFloat);
      kernels::target_logits(block_of(i, r, m), columns.data(), sums.data_ptr<float>() + m);
      kernels::block_exponentials(block_of(i, r, m), most.data_ptr<float>(),
                                  sums.data_ptr<float>());
      return sums;
    };
    const bool own = base::planted(base::Fault::local_softmax);
    const at::Tensor sums =
        (own ? own_part(group, part, /*joins=*/false) : sum_grains(group, part)).wait();

    const int64_t* targets = head_.targets.data_ptr<int64_t>() + r;
    const float* of_rows = row_weights_ == nullptr ? nullptr : row_weights_ + r;
    const at::Tensor shares = at::empty({m}, at::kFloat);
    kernels::finish_losses(m, targets, of_rows, most.data_ptr<float>(), sums.data_ptr<float>(),
                           sums.data_ptr<float>() + m, losses, shares.data_ptr<float>());
    if (!head_.wants_dx && !head_.wants_dw) return;
    for (size_t i = 0; i < weights_.size(); ++i) {
      torch_inside::touch_for_reading({weights_[i]});
      kernels::block_gradients(block_of(i, r, m), shares.data_ptr<float>(),
                               columns_of(i, r, m).data(), of_rows,
                               head_.wants_dx ? dx_[i].data_ptr<float>() + r * width() : nullptr,
                               head_.wants_dw ? dw_[i].data_ptr<float>() : nullptr,
                               /*adds_to_dw=*/r > 0);
    }
    for (size_t i = 0; i < weights_.size(); ++i) {
      const int64_t products = 1 + (head_.wants_dx ? 1 : 0) + (head_.wants_dw ? 1 : 0);
      torch_inside::add_gemm_flops(2 * m * width() * columns_.real(i) * products);
    }
  }

  /// Targets as columns of the rank's grain i; outside of [0, real) where they are another's.
  std::vector<int64_t> columns_of(size_t i, int64_t r, int64_t m) const {
    const bool local = base::planted(base::Fault::local_targets);
    const int64_t* targets = head_.targets.data_ptr<int64_t>() + r;
    std::vector<int64_t> columns(targets, targets + m);
    for (int64_t& column : columns) {
      column = column < 0 ? -1 : column - (local ? 0 : columns_.first(i));
      if (column >= columns_.real(i)) column = -1;
    }
    return columns;
  }

  const Head& head_;
  detail::VocabColumns columns_;
  at::Tensor x_;
  const float* row_weights_;  // [N], or null
  kernels::OperandType type_;
  std::vector<at::Tensor> weights_;  // as products take them
  std::vector<int64_t> offsets_;     // of each grain's scratch
  at::Tensor scratch_;
  std::vector<at::Tensor> dx_;  // of each grain
  std::vector<at::Tensor> dw_;
};

struct VocabHead final : torch::autograd::Function<VocabHead> {
  // `weights` are the head's, or empty where they are deferred.
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            const at::TensorList& /*weights*/, const Head& head) {
    torch_inside::OwnOperator record("lockstep::vocab_head", {x, head.weights[0]});
    const at::Tensor whole = whole_of(head.group, x.contiguous()).wait();
    const at::Tensor rows = fused::row_operand(head.group.arithmetic, whole);
    Blocks blocks(head, rows, nullptr);
    const at::Tensor losses = blocks.losses();
    variable_list saved = blocks.take_dw();
    if (head.wants_dx) saved.push_back(joined(head, blocks.take_dx(), whole));
    saved.push_back(rows);
    ctx->save_for_backward(saved);
    ctx->saved_data["shape"] = whole.sizes().vec();
    torch_inside::keep(*ctx, head);
    record.gives({losses});
    return losses;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const Head& head = torch_inside::kept<Head>(*ctx);
    variable_list saved = ctx->get_saved_variables();
    const at::Tensor rows = saved.back();
    saved.pop_back();
    const at::Tensor g = gradients[0].contiguous();
    torch_inside::OwnOperator record("lockstep::vocab_head_backward", {g});
    float factor = 1;
    if (fused::uniform_gradient(g, head.targets, factor)) {
      for (const at::Tensor& made : saved) {
        kernels::scale_in_place(made.data_ptr<float>(), made.numel(), factor);
      }
    } else {
      Blocks blocks(head, rows, g.data_ptr<float>());
      blocks.losses();
      saved = blocks.take_dw();
      if (head.wants_dx) {
        const at::Tensor like = rows.new_empty({0}).resize_(ctx->saved_data["shape"].toIntVector());
        saved.push_back(joined(head, blocks.take_dx(), like));
      }
    }
    variable_list result{head.wants_dx ? saved.back() : at::Tensor()};
    for (size_t i = 0; i < head.weights.size(); ++i) {
      const at::Tensor dw = head.wants_dw ? saved[i] : at::Tensor();
      if (!head.deferred) {
        result.push_back(dw);
      } else if (dw.defined()) {
        head.group.weight_queue->entries.push_back({head.weights[i], [dw] { return dw; }});
      }
    }
    result.emplace_back();  // the head
    return result;
  }

  /// The sum over grains of their dx, in the shape of x: whole, or this rank's slices.
  static at::Tensor joined(const Head& head, const std::vector<at::Tensor>& dx,
                           const at::Tensor& whole) {
    const int first = head.group.place.local.lo;
    const auto part = [&](int grain) {
      return dx[static_cast<size_t>(grain - first)].view(whole.sizes());
    };
    const bool skips = base::planted(base::Fault::skipped_backward_sum);
    return (skips ? own_part(head.group, part, /*joins=*/true) : join_grains(head.group, part))
        .wait();
  }
};

/// Of one grain, whose weight gradient goes to the queue if there is one.
at::Tensor whole_head(const TensorGroup& group, const at::Tensor& x, const at::Tensor& weight,
                      const at::Tensor& targets) {
  fused::GradientSink sink;
  if (detail::defers(group, x)) {
    sink = [queue = group.weight_queue, weight](const at::Tensor& gradient) {
      queue->entries.push_back({weight, [gradient] { return gradient; }});
    };
  }
  return fused::token_losses(group.arithmetic, x, weight, targets, sink);
}

at::Tensor head_then_loss(const TensorGroup& group, const at::Tensor& x,
                          const std::vector<at::Tensor>& weights, const at::Tensor& targets,
                          int64_t vocab, const ColumnOptions& options) {
  if (group.grains() == 1) {
    return at::cross_entropy_loss(linear(group, x, weights[0], {}).flatten(0, -2), targets,
                                  /*weight=*/{}, at::Reduction::None);
  }
  std::vector<at::Tensor> logits = column_linear(group, x, weights, {}, options);
  for (at::Tensor& of_grain : logits) of_grain = of_grain.flatten(0, -2);
  return vocab_cross_entropy(group, logits, targets, vocab);
}

}  // namespace

at::Tensor head_losses(const TensorGroup& group, const at::Tensor& x,
                       const std::vector<at::Tensor>& weights, const at::Tensor& targets,
                       int64_t vocab, const ColumnOptions& options) {
  const plan::Arithmetic& arithmetic = group.arithmetic;
  if (!arithmetic.fused || arithmetic.compute == plan::ComputeType::fp16) {
    return head_then_loss(group, x, weights, targets, vocab, options);
  }
  if (group.grains() == 1) return whole_head(group, x, weights[0], targets);
  const bool graph = at::GradMode::is_enabled();
  const Head head{.group = group,
                  .weights = weights,
                  .targets = fused::checked_targets(targets, vocab),
                  .vocab = vocab,
                  .wants_dx = graph && x.requires_grad(),
                  .wants_dw = graph && weights[0].requires_grad(),
                  .deferred = detail::defers(group, x)};
  if (head.deferred) return VocabHead::apply(x, at::TensorList(), head);
  return VocabHead::apply(x, at::TensorList(weights), head);
}

}  // namespace lockstep::parallel
