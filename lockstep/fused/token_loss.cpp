#include "lockstep/fused/token_loss.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/kernels/span.h"
#include "lockstep/kernels/token_loss.h"
#include "lockstep/torch_inside/first_touch.h"
#include "lockstep/torch_inside/gemm_counter.h"
#include "lockstep/torch_inside/kept.h"
#include "lockstep/torch_inside/own_operator.h"

namespace lockstep::fused {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Head {
  Arithmetic arithmetic;
  at::Tensor weight;
  at::Tensor targets;  // [R]
  GradientSink sink;
  bool wants_dx = false;
  bool wants_dw = false;
};

struct Gradients {
  at::Tensor dx;  // undefined: not wanted
  at::Tensor dw;
};

/// Losses, and what is wanted of their weighted sum's gradients.
Gradients compute(const Head& head, const at::Tensor& x_RD, const float* weights,
                  const at::Tensor& losses) {
  const at::Tensor w_VD = operand(head.arithmetic, head.weight);
  const kernels::TokenLossShape shape{.type = operand_type(x_RD),
                                      .rows = x_RD.size(0),
                                      .width = x_RD.size(1),
                                      .vocab = w_VD.size(0)};
  Gradients made;
  if (head.wants_dx) made.dx = at::empty({shape.rows, shape.width}, at::kFloat);
  if (head.wants_dw) made.dw = at::empty({shape.vocab, shape.width}, at::kFloat);
  const at::Tensor scratch = at::empty({kernels::token_loss_scratch(shape)}, at::kFloat);
  torch_inside::touch_for_reading({w_VD});
  kernels::token_losses(
      shape, x_RD.data_ptr(), w_VD.data_ptr(), head.targets.data_ptr<int64_t>(), weights,
      losses.data_ptr<float>(), head.wants_dx ? made.dx.data_ptr<float>() : nullptr,
      head.wants_dw ? made.dw.data_ptr<float>() : nullptr, scratch.data_ptr<float>());
  torch_inside::add_gemm_flops(kernels::token_loss_flops(shape, head.wants_dx, head.wants_dw));
  return made;
}

struct TokenLosses final : torch::autograd::Function<TokenLosses> {
  // `weights`: the head's, or empty where its gradient goes to the sink.
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            const at::TensorList& /*weights*/, const Head& head) {
    torch_inside::OwnOperator record("lockstep::token_losses", {x, head.weight});
    const at::Tensor x_RD = row_operand(head.arithmetic, x);
    at::Tensor losses = at::empty({x_RD.size(0)}, at::kFloat);
    const Gradients made = compute(head, x_RD, nullptr, losses);
    ctx->save_for_backward({x_RD, made.dx, made.dw});
    ctx->saved_data["shape"] = x.sizes().vec();
    torch_inside::keep(*ctx, head);
    record.gives({losses, made.dx, made.dw});
    return losses;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const Head& head = torch_inside::kept<Head>(*ctx);
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor g = gradients[0].contiguous();
    torch_inside::OwnOperator record("lockstep::token_losses_backward", {g});
    Gradients made{saved[1], saved[2]};
    float factor = 1;
    if (uniform_gradient(g, head.targets, factor)) {
      for (const at::Tensor& gradient : {made.dx, made.dw}) {
        if (!gradient.defined()) continue;
        kernels::scale_in_place(gradient.data_ptr<float>(), gradient.numel(), factor);
      }
    } else {
      const at::Tensor losses = at::empty({g.numel()}, at::kFloat);
      made = compute(head, saved[0], g.data_ptr<float>(), losses);
    }
    if (made.dx.defined()) made.dx = made.dx.view(ctx->saved_data["shape"].toIntVector());
    if (!head.sink) return {made.dx, made.dw, at::Tensor()};
    if (made.dw.defined()) head.sink(made.dw);
    return {made.dx, at::Tensor()};
  }
};

}  // namespace

at::Tensor checked_targets(const at::Tensor& targets, int64_t vocab) {
  const at::Tensor flat = targets.reshape({-1}).contiguous();
  const int64_t* first = flat.data_ptr<int64_t>();
  const int64_t* last = first + flat.numel();
  const int64_t* most = std::max_element(first, last);
  if (most != last && *most >= vocab) {
    throw UsageError(base::str("target ", *most, " is not in a vocabulary of ", vocab,
                               ".\n  Train with the tokenizer that wrote the data."));
  }
  return flat;
}

bool uniform_gradient(const at::Tensor& gradient, const at::Tensor& targets, float& factor) {
  const float* g = gradient.data_ptr<float>();
  const int64_t* t = targets.data_ptr<int64_t>();
  const int64_t rows = targets.numel();
  factor = 0;
  int64_t first = 0;
  while (first < rows && t[first] < 0) ++first;
  if (first < rows) factor = g[first];
  return std::all_of(g + first, g + rows,
                     [&](const float& at) { return at == factor || t[&at - g] < 0; });
}

at::Tensor token_losses(const Arithmetic& arithmetic, const at::Tensor& x, const at::Tensor& weight,
                        const at::Tensor& targets, const GradientSink& sink) {
  Head head{.arithmetic = arithmetic,
            .weight = weight,
            .targets = checked_targets(targets, weight.size(0)),
            .sink = sink,
            .wants_dx = x.requires_grad() && at::GradMode::is_enabled(),
            .wants_dw = weight.requires_grad() && at::GradMode::is_enabled()};
  if (sink) return TokenLosses::apply(x, at::TensorList(), head);
  const std::vector<at::Tensor> weights{weight};
  return TokenLosses::apply(x, at::TensorList(weights), head);
}

}  // namespace lockstep::fused
