#include "lockstep/train/layer_list.h"

#include <ATen/ops/cross_entropy_loss.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

/// "block.0" for a name that comes more than once.
template <class Wanted>
std::vector<std::string> numbered(const std::vector<Wanted>& wanted) {
  std::map<std::string, int> times;
  for (const Wanted& layer : wanted) ++times[layer.name];
  std::map<std::string, int> seen;
  std::vector<std::string> names;
  for (const Wanted& layer : wanted) {
    names.push_back(times[layer.name] > 1 ? base::str(layer.name, ".", seen[layer.name]++)
                                          : layer.name);
  }
  return names;
}

bool is_below(const std::string& path, const std::string& name) {
  return path.size() > name.size() && path.starts_with(name) && path[name.size()] == '.';
}

}  // namespace

at::Tensor token_loss(const Layer& last, const at::Tensor& out, const at::Tensor& target) {
  if (const auto* head = dynamic_cast<const VocabHead*>(last.module.get())) {
    return head->losses(out, target);
  }
  return at::cross_entropy_loss(out.flatten(0, -2), target.reshape({-1}), /*weight=*/{},
                                at::Reduction::None);
}

LayerNet::LayerNet(const Layers& layers, const std::vector<std::pair<int64_t, int64_t>>& runs) {
  const std::vector<std::string> names = numbered(layers.wanted_);
  const int grains = BuildScope::current().tensor.grains;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto& tie = layers.wanted_[i].tie;
    if (!tie) continue;
    if (std::find(names.begin(), names.end(), tie->layer) == names.end()) {
      throw UsageError(base::str("layer \"", names[i], "\" is tied to \"", tie->layer,
                                 "\", but there is no such layer."));
    }
    for (int grain = 0; grain < grains; ++grain) {
      const std::string weight = grains > 1 ? base::str(".weight@", grain) : ".weight";
      ties_.push_back({.use = names[i] + weight, .of = tie->layer + weight});
    }
  }
  std::map<std::string, std::shared_ptr<torch::nn::Module>> lists;
  for (const auto& [first, last] : runs) {
    std::vector<Layer>& chunk = chunks_.emplace_back();
    for (int64_t i = first; i < last; ++i) {
      const std::string& name = names[static_cast<size_t>(i)];
      chunk.push_back(layers.wanted_[static_cast<size_t>(i)].make(name));
      const size_t dot = name.find('.');
      if (dot == std::string::npos) {
        register_module(name, chunk.back().module);
        continue;
      }
      auto& list = lists[name.substr(0, dot)];
      if (!list) list = register_module(name.substr(0, dot), std::make_shared<torch::nn::Module>());
      list->register_module(name.substr(dot + 1), chunk.back().module);
    }
    if (last == std::ssize(names)) last_chunk_ = static_cast<int>(chunks_.size()) - 1;
  }
}

at::Tensor LayerNet::run_chunk(int chunk, const at::Tensor& input, const at::Tensor& target,
                               const LayerLoss& loss) const {
  at::Tensor x = input;
  const std::vector<Layer>& layers = chunks_[static_cast<size_t>(chunk)];
  for (const Layer& layer : layers) x = layer.forward(x);
  return chunk == last_chunk_ ? loss(layers.back(), x, target) : x;
}

int LayerNet::chunk_of(const std::string& path) const {
  for (size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
    for (const Layer& layer : chunks_[chunk]) {
      if (is_below(path, layer.name)) return static_cast<int>(chunk);
    }
  }
  return 0;
}

plan::TensorSlice LayerNet::slice_of(const std::string& path) const {
  // The innermost module that the path goes through says it.
  const size_t dot = path.rfind('.');
  if (dot == std::string::npos) return {};
  for (const auto& item : named_modules()) {
    if (item.key() != path.substr(0, dot)) continue;
    const auto* divided = dynamic_cast<const DividedLayer*>(item.value().get());
    if (divided == nullptr) return {};
    plan::TensorSlice slice = divided->slice_of(path.substr(dot + 1));
    if (!slice.logical.empty()) slice.logical = path.substr(0, dot + 1) + slice.logical;
    return slice;
  }
  return {};
}

}  // namespace lockstep
