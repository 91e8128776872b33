#include "lockstep/models/resnet.h"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>

#include <cmath>

#include "lockstep/models/detail/settings_check.h"
#include "lockstep/torch_inside/layer_scope.h"
#include "lockstep/torch_inside/recompute.h"

namespace lockstep::models {
namespace {

using parallel::ChannelNorm;

/// 3x3, padded; no bias, which the norm behind it has.
at::Tensor convolved(const at::Tensor& x, const at::Tensor& weight, int64_t stride) {
  return at::convolution(x, weight, /*bias=*/{}, {stride, stride}, /*padding=*/{1, 1}, {1, 1},
                         /*transposed=*/false, {0, 0}, /*groups=*/1);
}

int64_t halved(int64_t size) { return (size + 1) / 2; }

/// A weight under a module of its own, as other models have them: NAME.weight.
at::Tensor convolution_weight(torch::nn::Module& parent, const std::string& name, int64_t out,
                              int64_t in) {
  const auto module = parent.register_module(name, std::make_shared<torch::nn::Module>());
  return module->register_parameter("weight", at::empty({out, in, 3, 3}));
}

}  // namespace

struct ResNet::Block final : torch::nn::Module {
  Block(parallel::NormKind kind, int64_t in, int64_t out, int64_t stride_of_first,
        const std::shared_ptr<parallel::NormShare>& share)
      : stride(stride_of_first) {
    conv1 = convolution_weight(*this, "conv1", out, in);
    norm1 = register_module("norm1", std::make_shared<ChannelNorm>(kind, out, share));
    conv2 = convolution_weight(*this, "conv2", out, out);
    norm2 = register_module("norm2", std::make_shared<ChannelNorm>(kind, out, share));
  }

  at::Tensor shortcut(const at::Tensor& x) const {
    if (stride == 1) return x;
    const at::Tensor fewer = x.slice(2, 0, c10::nullopt, stride).slice(3, 0, c10::nullopt, stride);
    return at::constant_pad_nd(fewer, {0, 0, 0, 0, 0, conv1.size(0) - x.size(1)});
  }

  at::Tensor forward(const at::Tensor& x, const RankContext& context) {
    const at::Tensor inner = at::relu(norm1->forward(convolved(x, conv1, stride), context));
    const at::Tensor y = norm2->forward(convolved(inner, conv2, 1), context);
    return at::relu(y + shortcut(x));
  }

  int64_t stride;
  at::Tensor conv1, conv2;
  std::shared_ptr<ChannelNorm> norm1, norm2;
};

ResNet::ResNet(const ResNetSettings& settings)
    : settings_(settings),
      share_(std::make_shared<parallel::NormShare>(parallel::NormShare{
          .eps = settings.norm_eps, .running = parallel::RunningValues(settings.momentum)})) {
  require_size("blocks", settings.blocks);
  require_size("width", settings.width);
  require_size("classes", settings.classes);
  require_size("channels", settings.channels);
  require_positive("norm_eps", settings.norm_eps);
  const parallel::NormKind kind = parallel::norm_kind_of(settings.norm);
  stem_ = convolution_weight(*this, "stem", settings.width, settings.channels);
  stem_norm_ =
      register_module("stem_norm", std::make_shared<ChannelNorm>(kind, settings.width, share_));
  const auto list = register_module("blocks", std::make_shared<torch::nn::Module>());
  int64_t in = settings.width;
  for (int stage = 0; stage < kStages; ++stage) {
    const int64_t out = settings.width << stage;
    for (int64_t n = 0; n < settings.blocks; ++n) {
      const int64_t stride = in == out ? 1 : 2;
      blocks_.push_back(list->register_module(
          std::to_string(blocks_.size()), std::make_shared<Block>(kind, in, out, stride, share_)));
      in = out;
    }
  }
  const auto head = register_module("head", std::make_shared<torch::nn::Module>());
  head_weight_ = head->register_parameter("weight", at::empty({settings.classes, in}));
  head_bias_ = head->register_parameter("bias", at::empty({settings.classes}));
}

at::Tensor ResNet::forward(const at::Tensor& pictures, const RankContext& context) {
  // Twice as fast as channel by channel, where channels are few.
  const at::Tensor in = pictures.contiguous(at::MemoryFormat::ChannelsLast);
  at::Tensor x = at::relu(stem_norm_->forward(convolved(in, stem_, 1), context));
  for (size_t n = 0; n < blocks_.size(); ++n) {
    const std::string path = "blocks." + std::to_string(n);
    const auto forward = [block = blocks_[n], path, context](const at::Tensor& of) {
      const torch_inside::LayerScope scope(path);
      return block->forward(of, context);
    };
    x = settings_.recompute ? checkpoint(forward, x) : forward(x);
    if (context.see_activation) context.see_activation(path, x);
  }
  return at::linear(x.mean({2, 3}), head_weight_, head_bias_);
}

void ResNet::synchronize_over(std::shared_ptr<ProcessGroup> group) {
  share_->group = std::move(group);
}

void ResNet::end_step(ProcessGroup& group, int leaves) { share_->running.update(group, leaves); }

plan::Init ResNet::init_of(const std::string& path) const {
  if (path.ends_with("bias")) return {.kind = plan::Init::Kind::zeros};
  const at::Tensor weight = named_parameters(/*recurse=*/true)[path];
  if (weight.dim() == 1) return {.kind = plan::Init::Kind::ones};
  const auto inputs = static_cast<double>(weight.numel() / weight.size(0));
  return {.kind = plan::Init::Kind::normal, .std = std::sqrt(2 / inputs)};
}

double ResNet::flops_per_picture(int64_t rows, int64_t columns) const {
  int64_t products = stem_.numel() * rows * columns + head_weight_.numel();
  for (const auto& block : blocks_) {
    if (block->stride > 1) {
      rows = halved(rows);
      columns = halved(columns);
    }
    products += (block->conv1.numel() + block->conv2.numel()) * rows * columns;
  }
  return 6.0 * static_cast<double>(products);
}

std::shared_ptr<ResNet> make_resnet(const plan::TrainConfig& config, int64_t classes) {
  return std::make_shared<ResNet>(ResNetSettings{.blocks = config.model.layers,
                                                 .width = config.model.width,
                                                 .classes = classes,
                                                 .norm = config.model.norm,
                                                 .norm_eps = config.model.norm_eps,
                                                 .recompute = config.memory.recompute == "block"});
}

}  // namespace lockstep::models
