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

thread_local uint64_t operators = 0;

struct Watcher {
  std::function<void()> touched;
  bool writes_only = false;
};

/// Who wants to know of which storage. Never destroyed: graphs may outlive statics.
struct Watchers {
  std::shared_mutex mutex;  // guards `by_storage`
  std::unordered_map<const c10::StorageImpl*, std::shared_ptr<const Watcher>> by_storage;
};

Watchers& watchers() {
  static auto* const all = new Watchers;
  return *all;
}

void watch(const at::Tensor& flat, Watcher watcher) {
  Watchers& all = watchers();
  const std::unique_lock lock(all.mutex);
  all.by_storage[flat.storage().unsafeGetStorageImpl()] =
      std::make_shared<const Watcher>(std::move(watcher));
}

void watch_no_more(const at::Tensor& flat) {
  Watchers& all = watchers();
  const std::unique_lock lock(all.mutex);
  all.by_storage.erase(flat.storage().unsafeGetStorageImpl());
}

void touch(const at::Tensor& tensor, bool writes) {
  if (!tensor.defined() || !tensor.key_set().has(kKey)) return;
  std::shared_ptr<const Watcher> watcher;
  {
    Watchers& all = watchers();
    const std::shared_lock lock(all.mutex);
    const auto found = all.by_storage.find(tensor.storage().unsafeGetStorageImpl());
    if (found == all.by_storage.end()) return;
    watcher = found->second;
  }
  if (writes || !watcher->writes_only) watcher->touched();
}

/// Operators that look at shapes only: a module's tensor is exchanged or detached by them.
bool reads_nothing(const c10::OperatorHandle& op) {
  const std::string& name = op.schema().name();
  return name == "aten::_has_compatible_shallow_copy_type" || name == "aten::detach" ||
         name == "aten::set_data";
}

void touch_all(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const std::vector<c10::Argument>& arguments = op.schema().arguments();
  const auto values = torch::jit::last(stack, arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = values[i];
    const bool writes =
        arguments[i].alias_info() != nullptr && arguments[i].alias_info()->isWrite();
    if (value.isTensor()) {
      touch(value.toTensor(), writes);
    } else if (value.isTensorList()) {
      for (const auto& tensor : value.toTensorVector()) touch(tensor, writes);
    } else if (value.isOptionalTensorList()) {
      for (const auto& tensor : value.toOptionalTensorVector()) {
        if (tensor) touch(*tensor, writes);
      }
    }
  }
}

void before_operator(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  ++operators;
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

uint64_t operators_seen() { return operators; }

bool is_watched(const at::Tensor& tensor) { return tensor.key_set().has(kKey); }

void touch_for_reading(std::initializer_list<at::Tensor> tensors) {
  ++operators;
  for (const at::Tensor& tensor : tensors) touch(tensor, /*writes=*/false);
}

ReleasableStorage::ReleasableStorage(int64_t numel, std::function<void()> touched) {
  install();
  const at::Tensor empty = at::empty({0}, at::kFloat);
  flat_ = view_of(empty, empty.key_set(), {numel}, 0);
  watch(flat_, {.touched = std::move(touched)});
}

ReleasableStorage::~ReleasableStorage() { watch_no_more(flat_); }

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

WatchedWrites::WatchedWrites(at::Tensor memory, std::function<void()> written)
    : memory_(std::move(memory)) {
  install();
  watch(memory_, {.touched = std::move(written), .writes_only = true});
}

WatchedWrites::~WatchedWrites() { watch_no_more(memory_); }

at::Tensor WatchedWrites::watched(const at::Tensor& part) const {
  return view_of(part, part.key_set() | c10::DispatchKeySet(kKey), part.sizes(),
                 part.storage_offset());
}

}  // namespace lockstep::torch_inside
