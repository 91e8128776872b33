/// A model as a list of layers, which a pipeline may cut anywhere: what `Training::build_layers`
/// builds. Each rank makes the layers of its own pieces only.
///
///   t.build_layers([&](lockstep::Layers& l) {
///     l.add<lockstep::VocabEmbedding>("embed", V, D);
///     for (int i = 0; i < 12; ++i) l.add<Block>("block", D, heads);   // block.0, block.1, ...
///     l.add<lockstep::VocabHead>("head", D, V, lockstep::tied("embed"));
///   });
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/parallel/layers.h"
#include "lockstep/plan/param_table.h"

namespace lockstep {

/// A layer that is there: the module and its `at::Tensor forward(at::Tensor)`.
struct Layer {
  std::string name;
  std::shared_ptr<torch::nn::Module> module;
  std::function<at::Tensor(const at::Tensor&)> forward;
};

class Layers {
 public:
  /// The next layer, an L made of `arguments` where it is needed. A name that comes again is
  /// numbered from its first: "block.0", "block.1". Two weights are tied by `tied(name)`.
  template <class L, class... Arguments>
  void add(const std::string& name, Arguments... arguments) {
    std::optional<Tied> tie;
    ((void)take_tie(tie, arguments), ...);
    wanted_.push_back({name,
                       [=](const std::string& full_name) {
                         auto module = std::make_shared<L>(arguments...);
                         return Layer{full_name, module, [module](const at::Tensor& x) {
                                        return at::Tensor(module->forward(x));
                                      }};
                       },
                       tie});
  }

 private:
  friend class LayerNet;
  struct Wanted {
    std::string name;
    std::function<Layer(const std::string& name)> make;
    std::optional<Tied> tie;
  };
  static void take_tie(std::optional<Tied>& tie, const Tied& given) { tie = given; }
  template <class Other>
  static void take_tie(std::optional<Tied>&, const Other&) {}

  std::vector<Wanted> wanted_;
};

/// The loss of each term of a micro-batch from the last layer and what it gave.
using LayerLoss =
    std::function<at::Tensor(const Layer& last, const at::Tensor& out, const at::Tensor& target)>;

/// Cross-entropy of the next token: of a VocabHead, or of logits [..., V] of any other last layer.
at::Tensor token_loss(const Layer& last, const at::Tensor& out, const at::Tensor& target);

/// This rank's pieces of the list.
class LayerNet : public torch::nn::Module {
 public:
  /// `runs`: by chunk, the layers first <= i < last that this rank makes.
  LayerNet(const Layers& layers, const std::vector<std::pair<int64_t, int64_t>>& runs);

  /// Layers of chunk `chunk`, one after the other; the loss after the model's last one.
  at::Tensor run_chunk(int chunk, const at::Tensor& input, const at::Tensor& target,
                       const LayerLoss& loss) const;
  int chunk_of(const std::string& path) const;
  plan::TensorSlice slice_of(const std::string& path) const;
  const std::vector<plan::Tie>& ties() const { return ties_; }
  static int64_t count(const Layers& layers) { return std::ssize(layers.wanted_); }

 private:
  std::vector<std::vector<Layer>> chunks_;
  std::vector<plan::Tie> ties_;
  int last_chunk_ = -1;
};

}  // namespace lockstep
