#include "lockstep/fused/attention.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "lockstep/kernels/attention.h"
#include "lockstep/torch_inside/gemm_counter.h"
#include "lockstep/torch_inside/kept.h"
#include "lockstep/torch_inside/own_operator.h"

namespace lockstep::fused {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

kernels::AttentionShape shape_of(const at::Tensor& qkv, const AttentionSettings& settings) {
  const bool sliced = qkv.dim() == 4;
  const int64_t slices = sliced ? qkv.size(0) : 1;
  return {.slices = slices,
          .samples = qkv.size(sliced ? 1 : 0),
          .sequence = slices * qkv.size(sliced ? 2 : 1),
          .heads = settings.heads,
          .kv_heads = settings.kv_heads,
          .width = qkv.size(-1) / (settings.heads + 2 * settings.kv_heads)};
}

kernels::AttentionOptions options_of(const AttentionSettings& settings) {
  const bool turns = settings.cos.defined();
  return {.type = settings.arithmetic.compute == plan::ComputeType::bf16
                      ? kernels::OperandType::bf16
                      : kernels::OperandType::fp32,
          .scale = static_cast<float>(settings.scale),
          .cos = turns ? settings.cos.data_ptr<float>() : nullptr,
          .sin = turns ? settings.sin.data_ptr<float>() : nullptr,
          .dropout = settings.dropout,
          .keys = settings.keys.data(),
          .first_head = settings.first_head};
}

at::Tensor scratch_for(const kernels::AttentionShape& shape) {
  return at::empty({kernels::attention_scratch(shape)}, at::kFloat);
}

struct Attention final : torch::autograd::Function<Attention> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& qkv,
                            const AttentionSettings& settings) {
    torch_inside::OwnOperator record("lockstep::attention", {qkv});
    const kernels::AttentionShape shape = shape_of(qkv, settings);
    std::vector<int64_t> sizes = qkv.sizes().vec();
    sizes.back() = shape.row_out();
    at::Tensor out = at::empty(sizes, at::kFloat);
    at::Tensor log_sums = at::empty({shape.samples, shape.heads, shape.sequence}, at::kFloat);
    kernels::attention(shape, options_of(settings), qkv.data_ptr<float>(), out.data_ptr<float>(),
                       log_sums.data_ptr<float>(), scratch_for(shape).data_ptr<float>());
    torch_inside::add_gemm_flops(kernels::attention_flops(shape));
    record.gives({out, log_sums});
    ctx->save_for_backward({qkv, out, log_sums});
    torch_inside::keep(*ctx, settings);
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const auto& settings = torch_inside::kept<AttentionSettings>(*ctx);
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &qkv = saved[0], &out = saved[1], &log_sums = saved[2];
    const at::Tensor d_out = gradients[0].contiguous();
    torch_inside::OwnOperator record("lockstep::attention_backward", {qkv, d_out});
    const kernels::AttentionShape shape = shape_of(qkv, settings);
    at::Tensor d_qkv = at::empty_like(qkv);
    kernels::attention_backward(shape, options_of(settings), qkv.data_ptr<float>(),
                                out.data_ptr<float>(), log_sums.data_ptr<float>(),
                                d_out.data_ptr<float>(), d_qkv.data_ptr<float>(),
                                scratch_for(shape).data_ptr<float>());
    torch_inside::add_gemm_flops(kernels::attention_flops(shape) / 2 * 5);
    record.gives({d_qkv});
    return {d_qkv, at::Tensor()};
  }
};

}  // namespace

at::Tensor attention(const at::Tensor& qkv, const AttentionSettings& settings) {
  return Attention::apply(qkv.contiguous(), settings);
}

}  // namespace lockstep::fused
