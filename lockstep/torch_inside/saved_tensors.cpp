#include "lockstep/torch_inside/saved_tensors.h"

#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>
#include <torch/torch.h>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::torch_inside {
namespace {

using torch::autograd::SavedVariableHooks;

// Innermost last.
std::vector<const SavedTensorScope::Pack*>& scopes_here() {
  static thread_local std::vector<const SavedTensorScope::Pack*> scopes;
  return scopes;
}

bool is_parameter(const at::TensorBase& tensor) {
  const at::TensorBase& whole = tensor.is_view() ? tensor._base() : tensor;
  return whole.is_leaf() && whole.requires_grad();
}

bool is_kept(const at::Tensor& tensor) {
  return !tensor.device().is_cpu() || tensor.layout() != at::kStrided ||
         !tensor.is_floating_point() ||
         static_cast<int64_t>(tensor.nbytes()) < SavedTensorScope::kSmallestBytes ||
         is_parameter(tensor);
}

// One for each tensor that is saved.
class Hooks final : public SavedVariableHooks {
 public:
  explicit Hooks(const SavedTensorScope::Pack& pack) : pack_(pack) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    // Outside of the graph, or a node that saves its own result would own itself.
    const at::Tensor outside = tensor.detach();
    if (!is_kept(tensor)) {
      unpack_ = pack_(outside);
      return;
    }
    kept_ = outside;
    version_ = outside._version();
  }

  at::Tensor call_unpack_hook() override {
    if (unpack_) return unpack_();
    if (kept_._version() != version_) {
      throw UsageError(base::str("a tensor of shape ", kept_.sizes(),
                                 " that backward needs was changed in place after forward had "
                                 "saved it (version ",
                                 kept_._version(), ", saved at ", version_,
                                 ").\n  Change a clone of it."));
    }
    return kept_;
  }

 private:
  const SavedTensorScope::Pack& pack_;  // of a scope that lives while it packs
  SavedTensorScope::Unpack unpack_;
  at::Tensor kept_;
  int64_t version_ = 0;
};

struct Engine final : torch::autograd::Engine {
  ~Engine() override { stop(); }

  std::unique_ptr<SavedVariableHooks> get_default_saved_variable_hooks() override {
    auto& scopes = scopes_here();
    return scopes.empty() ? nullptr : std::make_unique<Hooks>(*scopes.back());
  }
};

// Never destroyed: its threads may outlive main.
torch::autograd::Engine& engine() {
  static Engine* const only = new Engine;
  return *only;
}

}  // namespace

SavedTensorScope::SavedTensorScope(Pack pack) : pack_(std::move(pack)) {
  static std::once_flag once;
  std::call_once(once, [] { torch::autograd::set_default_engine_stub(&engine); });
  scopes_here().push_back(&pack_);
}

SavedTensorScope::~SavedTensorScope() {
  LOCKSTEP_ASSERT(!scopes_here().empty() && scopes_here().back() == &pack_,
                  "scopes end in the thread that made them, innermost first");
  scopes_here().pop_back();
}

}  // namespace lockstep::torch_inside
