#include "lockstep/torch_inside/grad_hooks.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>
#include <vector>

#include "lockstep/base/assert.h"

namespace lockstep::torch_inside {
namespace {

using torch::autograd::variable_list;

// The pointer to a node is a shared_ptr here and an intrusive_ptr in later LibTorch.
using NodePtr =
    decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));

// Runs after the accumulator node has put the gradient into the tensor.
struct AfterAccumulation final : torch::autograd::FunctionPostHook {
  AfterAccumulation(std::function<void()> ready, std::shared_ptr<const bool> watched)
      : ready(std::move(ready)), watched(std::move(watched)) {}

  variable_list operator()(const variable_list& outputs, const variable_list&) override {
    if (*watched) ready();
    return outputs;
  }

  std::function<void()> ready;
  std::shared_ptr<const bool> watched;
};

}  // namespace

struct GradHooks::Impl {
  std::vector<NodePtr> accumulators;
  // A graph that its owner still holds keeps the nodes and their hooks longer than this object.
  std::shared_ptr<bool> watching = std::make_shared<bool>(true);
};

GradHooks::GradHooks() : impl_(std::make_unique<Impl>()) {}
GradHooks::~GradHooks() { *impl_->watching = false; }

void GradHooks::watch(const at::Tensor& leaf, std::function<void()> ready) {
  LOCKSTEP_ASSERT(leaf.is_leaf() && leaf.requires_grad(),
                  "only a leaf that requires a gradient has an accumulator");
  NodePtr accumulator = torch::autograd::impl::grad_accumulator(leaf);
  accumulator->add_post_hook(
      std::make_unique<AfterAccumulation>(std::move(ready), impl_->watching));
  impl_->accumulators.push_back(std::move(accumulator));
}

}  // namespace lockstep::torch_inside
