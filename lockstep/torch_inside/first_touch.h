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

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <vector>

namespace lockstep::torch_inside {

/// How many operators of this thread have come by here. One operator may touch several storages:
/// what it has touched must stay until the number is another.
uint64_t operators_seen();

/// Whether operators that take `tensor` come by here.
bool is_watched(const at::Tensor& tensor);

/// For kernels that are no operators and read memory themselves: after it, these tensors may be
/// read until the thread's next operator on a watched tensor. Undefined ones are passed over.
void touch_for_reading(std::initializer_list<at::Tensor> tensors);

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

/// Tells when an operator is about to write to a tensor: values that were copied from it are old
/// then. LibTorch's count of in-place operations does not tell, since optimizers write by way of
/// `data()`.
class WatchedWrites {
 public:
  /// `written` is called in the thread that runs the operator, before it, for watched tensors on
  /// the storage of `memory`.
  WatchedWrites(at::Tensor memory, std::function<void()> written);
  ~WatchedWrites();
  WatchedWrites(const WatchedWrites&) = delete;
  WatchedWrites& operator=(const WatchedWrites&) = delete;

  /// A watched tensor with the elements of `part`, a contiguous view on that storage; a leaf.
  at::Tensor watched(const at::Tensor& part) const;

 private:
  at::Tensor memory_;
};

}  // namespace lockstep::torch_inside
