#include "lockstep/state/heap_tensor.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <memory>

namespace lockstep::state {

at::Tensor heap_tensor(ProcessGroup& group, int64_t numel, at::ScalarType type, memory::Kind kind) {
  if (numel == 0) return at::empty({0}, type);
  const int64_t bytes = numel * static_cast<int64_t>(c10::elementSize(type));
  auto counted = std::make_shared<memory::Counted>(memory::current_account(), kind, bytes);
  net::HeapBlock block = group.group().allocate(bytes);
  void* const data = block.data();
  return at::from_blob(
      data, {numel}, [block = std::move(block), counted = std::move(counted)](void*) {},
      at::TensorOptions().dtype(type));
}

}  // namespace lockstep::state
