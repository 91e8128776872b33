#include "lockstep/torch_inside/first_touch.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <mutex>
#include <shared_mutex>
#include <unordered_map>

namespace lockstep::torch_inside {
namespace {

// A key above autograd that LibTorch leaves to others.
constexpr c10::DispatchKey kKey = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

/// Who wants to know of which storage. Never destroyed: graphs may outlive statics.
struct Watchers {
  std::shared_mutex mutex;  // guards `by_storage`
  std::unordered_map<const c10::StorageImpl*, std::shared_ptr<const std::function<void()>>>
      by_storage;
};

Watchers& watchers() {
  static auto* const all = new Watchers;
  return *all;
}

void touch(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.key_set().has(kKey)) return;
  std::shared_ptr<const std::function<void()>> touched;
  {
    Watchers& all = watchers();
    const std::shared_lock lock(all.mutex);
    const auto found = all.by_storage.find(tensor.storage().unsafeGetStorageImpl());
    if (found == all.by_storage.end()) return;
    touched = found->second;
  }
  (*touched)();
}

/// Operators that look at shapes only: a module's tensor is exchanged or detached by them.
bool reads_nothing(const c10::OperatorHandle& op) {
  const std::string& name = op.schema().name();
  return name == "aten::_has_compatible_shallow_copy_type" || name == "aten::detach" ||
         name == "aten::set_data";
}

void touch_all(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  for (const c10::IValue& value : torch::jit::last(stack, op.schema().arguments().size())) {
    if (value.isTensor()) {
      touch(value.toTensor());
    } else if (value.isTensorList()) {
      for (const auto& tensor : value.toTensorVector()) touch(tensor);
    } else if (value.isOptionalTensorList()) {
      for (const auto& tensor : value.toOptionalTensorVector()) {
        if (tensor) touch(*tensor);
      }
    }
  }
}

void before_operator(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (!reads_nothing(op)) touch_all(op, *stack);
  const c10::impl::ExcludeDispatchKeyGuard passed{c10::DispatchKeySet(kKey)};
  op.callBoxed(stack);
}

void install() {
  static std::once_flag once;
  std::call_once(once, [] {
    static auto* const library =
        new torch::Library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
    library->fallback(torch::CppFunction::makeFromBoxedFunction<&before_operator>());
  });
}

/// A tensor on a storage that need not have memory.
at::Tensor view_of(const at::Tensor& flat, c10::DispatchKeySet keys, at::IntArrayRef shape,
                   int64_t offset) {
  auto impl =
      c10::make_intrusive<c10::TensorImpl>(c10::Storage(flat.storage()), keys, flat.dtype());
  impl->set_sizes_contiguous(shape);
  impl->set_storage_offset(offset);
  return at::Tensor(std::move(impl));
}

}  // namespace

ReleasableStorage::ReleasableStorage(int64_t numel, std::function<void()> touched) {
  install();
  const at::Tensor empty = at::empty({0}, at::kFloat);
  flat_ = view_of(empty, empty.key_set(), {numel}, 0);
  Watchers& all = watchers();
  const std::unique_lock lock(all.mutex);
  all.by_storage[flat_.storage().unsafeGetStorageImpl()] =
      std::make_shared<const std::function<void()>>(std::move(touched));
}

ReleasableStorage::~ReleasableStorage() {
  Watchers& all = watchers();
  const std::unique_lock lock(all.mutex);
  all.by_storage.erase(flat_.storage().unsafeGetStorageImpl());
}

void ReleasableStorage::allocate() {
  c10::StorageImpl* const storage = flat_.storage().unsafeGetStorageImpl();
  const size_t bytes = static_cast<size_t>(flat_.numel()) * flat_.element_size();
  storage->set_data_ptr_noswap(storage->allocator()->allocate(bytes));
  storage->set_nbytes(bytes);
}

void ReleasableStorage::release() {
  c10::StorageImpl* const storage = flat_.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(c10::DataPtr(nullptr, flat_.device()));
  storage->set_nbytes(size_t{0});
}

at::Tensor ReleasableStorage::watched(at::IntArrayRef shape, int64_t offset) const {
  return view_of(flat_, flat_.key_set() | c10::DispatchKeySet(kKey), shape, offset);
}

}  // namespace lockstep::torch_inside
