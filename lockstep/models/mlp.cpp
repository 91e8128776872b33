#include "lockstep/models/mlp.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/tanh.h>

#include "lockstep/models/detail/settings_check.h"
#include "lockstep/models/dropout.h"
#include "lockstep/torch_inside/layer_scope.h"
#include "lockstep/torch_inside/recompute.h"

namespace lockstep::models {

Mlp::Mlp(const MlpSettings& settings) : settings_(settings) {
  require_size("vocab", settings.vocab);
  require_size("layers", settings.layers);
  require_size("width", settings.width);
  require_size("ffn", settings.ffn);
  require_dropout(settings.dropout);
  require_positive("init_std", settings.init_std);
  wte_ = register_module("wte", std::make_shared<Matrix>(settings.vocab, settings.width, false));
  const auto list = register_module("fc", std::make_shared<torch::nn::Module>());
  for (int64_t layer = 0; layer < settings.layers; ++layer) {
    const int64_t in = layer == 0 ? kWindow * settings.width : settings.ffn;
    hidden_.push_back(list->register_module(
        std::to_string(layer), std::make_shared<Matrix>(settings.ffn, in, settings.bias)));
  }
  lm_head_ =
      register_module("lm_head", std::make_shared<Matrix>(settings.vocab, settings.ffn, false));
}

// Shapes: B samples, S sequence, D width, W = kWindow * D, F a hidden layer's width.
at::Tensor Mlp::logits(const at::Tensor& ids_BS, const RankContext& context) {
  const int64_t B = ids_BS.size(0), S = ids_BS.size(1);
  const at::Tensor padded_BSD = at::constant_pad_nd(at::embedding(wte_->weight, ids_BS),
                                                    {0, 0, kWindow - 1, 0});  // S + kWindow - 1
  std::vector<at::Tensor> window;  // the oldest token first
  for (int64_t back = kWindow - 1; back >= 0; --back) {
    window.push_back(padded_BSD.narrow(1, kWindow - 1 - back, S));
  }
  at::Tensor x = at::cat(window, -1);  // [B, S, W], then [B, S, F]
  for (size_t layer = 0; layer < hidden_.size(); ++layer) {
    const auto forward = [fc = hidden_[layer], path = "fc." + std::to_string(layer), B,
                          p = settings_.dropout, context](const at::Tensor& in) {
      const torch_inside::LayerScope scope(path);
      return dropout(at::tanh(fc->linear(in)), B, p, context, path, "hidden");
    };
    x = settings_.recompute ? checkpoint(forward, x) : forward(x);
  }
  return lm_head_->linear(x);
}

plan::Init Mlp::init_of(const std::string& path) const {
  if (path.ends_with(".bias")) return {.kind = plan::Init::Kind::zeros};
  return {.kind = plan::Init::Kind::normal, .std = settings_.init_std};
}

double Mlp::flops_per_token() const {
  int64_t count = -wte_->weight.numel();
  for (const at::Tensor& parameter : parameters()) count += parameter.numel();
  return 6.0 * static_cast<double>(count);
}

}  // namespace lockstep::models
