/// Tells when an operator is about to read a tensor whose storage may be released: how parameters
/// are gathered just in time without wrapping anyone's module.
///
/// Parameters on a watched storage carry a dispatch key of their own. Every operator that takes one
/// of them, or a view that autograd saved for backward, comes by here first; then it goes on as if
/// the key were not there. Tensors without the key pay nothing, an operator that sees one pays
/// some tenths of a microsecond. Code that reads memory itself (`data_ptr`) is not seen.
///
/// Storage is released in place: the tensors, their views and what autograd holds stay as they are,
/// and find the values again when the storage has memory again.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

namespace lockstep::torch_inside {

/// A flat float32 tensor whose storage comes and goes.
class ReleasableStorage {
 public:
  /// Starts without memory. `touched` is called in the thread that runs the operator, before it.
  ReleasableStorage(int64_t numel, std::function<void()> touched);
  /// Views that are left read nothing any more: they must not be used.
  ~ReleasableStorage();
  ReleasableStorage(const ReleasableStorage&) = delete;
  ReleasableStorage& operator=(const ReleasableStorage&) = delete;

  /// Memory of LibTorch's CPU allocator, not filled.
  void allocate();
  void release();

  /// The whole, for filling it; not watched.
  const at::Tensor& flat() const { return flat_; }
  /// A watched tensor of this shape at this place; for Tensor::set_data of a parameter.
  at::Tensor watched(at::IntArrayRef shape, int64_t offset) const;

 private:
  at::Tensor flat_;
};

}  // namespace lockstep::torch_inside
