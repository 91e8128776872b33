/// Puts what autograd saves for backward somewhere else.
///
/// While a scope lives, each tensor that autograd saves in this thread is handed to its `pack`,
/// whose answer gives the tensor back when backward asks for it: later, in any thread, perhaps more
/// than once or never. Scopes nest: the innermost is asked.
///
/// Kept as they are: leaves that require grad (parameters) and views of them, tensors below 64 KiB,
/// and what is no dense floating-point tensor on a CPU. LibTorch checks no versions of tensors that
/// go through here, so those that are kept are checked here: one that was changed in place after it
/// was saved is a UsageError of backward. `pack` must copy what it keeps.
///
/// LibTorch's default engine is replaced by one of ours when the first scope of the process is
/// made, which must not be inside a backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace lockstep::torch_inside {

class SavedTensorScope {
 public:
  using Unpack = std::function<at::Tensor()>;
  /// Gets a tensor outside of any graph, on the storage of the one that is saved.
  using Pack = std::function<Unpack(const at::Tensor&)>;

  static constexpr int64_t kSmallestBytes = 64 * 1024;

  explicit SavedTensorScope(Pack pack);
  ~SavedTensorScope();
  SavedTensorScope(const SavedTensorScope&) = delete;
  SavedTensorScope& operator=(const SavedTensorScope&) = delete;

 private:
  Pack pack_;
};

}  // namespace lockstep::torch_inside
