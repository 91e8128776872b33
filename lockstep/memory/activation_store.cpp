#include "lockstep/memory/activation_store.h"

#include <torch/torch.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/memory/account.h"
#include "lockstep/memory/detail/extents.h"

namespace lockstep::memory {
namespace {

using files::AlignedBuffer;
using Ticket = files::BlockFile::Ticket;

// A view of a small part of a large storage is stored by itself.
constexpr int64_t kLargestShare = 4;

// A copy of a storage, placed for direct transfers. A tensor's memory: counted, and used again.
class Pages {
 public:
  explicit Pages(int64_t bytes) {
    const KindScope kind(Kind::activations);
    memory_ = at::empty({bytes + AlignedBuffer::kAlignment}, at::kByte);
    const auto address = reinterpret_cast<intptr_t>(memory_.data_ptr());
    skip_ = -address & (AlignedBuffer::kAlignment - 1);
  }

  char* data() const { return static_cast<char*>(memory_.data_ptr()) + skip_; }

  at::Tensor view(const ActivationStore::Handle& handle) const {
    const int64_t item = static_cast<int64_t>(c10::elementSize(handle.dtype));
    return at::empty({0}, handle.dtype)
        .set_(memory_.storage(), skip_ / item + handle.offset, handle.sizes, handle.strides);
  }

 private:
  at::Tensor memory_;
  int64_t skip_ = 0;  // bytes before the first page
};

}  // namespace

// A storage in the file.
struct ActivationStore::Stored {
  Stored(std::shared_ptr<Impl> in, const at::Tensor& tensor, int64_t bytes);
  ~Stored();

  std::shared_ptr<Impl> store;
  int64_t number;  // in the order of storing
  int64_t first;   // in the file
  int64_t bytes;   // there, whole pages
  // While this is held no other storage gets the same address.
  c10::weak_intrusive_ptr<c10::StorageImpl> source;
  int64_t version;             // of the source, as it was stored
  std::optional<Pages> pages;  // on their way to the file, read ahead, or loaded
  Ticket reading;              // into `pages`
  bool loaded = false;
};

struct ActivationStore::Impl {
  struct Write {
    Ticket ticket;
    Pages pages;
    int64_t bytes;
    std::weak_ptr<Stored> of;
  };

  Impl(std::shared_ptr<files::BlockFile> in, int64_t first, int64_t all_bytes,
       int64_t in_flight_bytes)
      : file(std::move(in)),
        room(first, all_bytes),
        bytes(all_bytes),
        most_writing(in_flight_bytes) {}
  ~Impl() { file->settle(); }  // before the memory of its transfers goes

  int64_t take_room(int64_t wanted);
  void write(const std::shared_ptr<Stored>& stored, const void* data, int64_t size);
  void end_oldest_write();
  void end_useless_writes();
  void start_reading(Stored& stored);
  void read_one_before(int64_t number);

  std::shared_ptr<files::BlockFile> file;
  detail::Extents room;
  int64_t bytes;
  int64_t stored_bytes = 0;
  int64_t last_number = 0;
  int64_t most_writing;
  int64_t writing = 0;
  std::deque<Write> writes;  // oldest first
  std::map<int64_t, Stored*> by_number;
  std::unordered_map<const c10::StorageImpl*, std::weak_ptr<Stored>> by_source;
};

int64_t ActivationStore::Impl::take_room(int64_t wanted) {
  const int64_t first = room.take(wanted);
  if (first < 0) {
    throw EnvironmentError(base::str(
        "no room for an activation of ", base::bytes_text(wanted),
        " in the offload file: ", base::bytes_text(stored_bytes), " of ", base::bytes_text(bytes),
        " are in use.\n  Give activations more room, or compute a smaller data.micro_batch."));
  }
  stored_bytes += wanted;
  return first;
}

void ActivationStore::Impl::write(const std::shared_ptr<Stored>& stored, const void* data,
                                  int64_t size) {
  while (!writes.empty() && writing + stored->bytes > most_writing) end_oldest_write();
  const Pages pages(stored->bytes);
  std::memcpy(pages.data(), data, static_cast<size_t>(size));
  const Ticket ticket = file->write(stored->first, pages.data(), stored->bytes);
  writes.push_back({ticket, pages, stored->bytes, stored});
  writing += stored->bytes;
  stored->pages = pages;
}

// Of what nobody will load: their copies hold memory that backward wants.
void ActivationStore::Impl::end_useless_writes() {
  while (!writes.empty() && writes.back().of.expired()) {
    const Write write = std::move(writes.back());
    writes.pop_back();
    writing -= write.bytes;
    file->wait(write.ticket);
  }
}

void ActivationStore::Impl::end_oldest_write() {
  const Write write = std::move(writes.front());
  writes.pop_front();
  writing -= write.bytes;
  file->wait(write.ticket);
  if (const auto stored = write.of.lock(); stored != nullptr && !stored->loaded) {
    stored->pages.reset();
  }
}

void ActivationStore::Impl::start_reading(Stored& stored) {
  const Pages pages(stored.bytes);
  stored.reading = file->read(stored.first, pages.data(), stored.bytes);
  stored.pages = pages;
}

void ActivationStore::Impl::read_one_before(int64_t number) {
  for (auto next = by_number.lower_bound(number); next != by_number.begin();) {
    --next;
    if (next->second->reading.number != 0) return;  // one is read ahead
    if (next->second->pages) continue;
    start_reading(*next->second);
    return;
  }
}

ActivationStore::Stored::Stored(std::shared_ptr<Impl> in, const at::Tensor& tensor, int64_t size)
    : store(std::move(in)),
      number(++store->last_number),
      first(store->take_room(size)),
      bytes(size),
      source(tensor.storage().getWeakStorageImpl()),
      version(tensor._version()) {
  store->by_number[number] = this;
}

ActivationStore::Stored::~Stored() {
  if (reading.number != 0) store->file->settle();
  store->by_number.erase(number);
  const auto known = store->by_source.find(source._unsafe_get_target());
  if (known != store->by_source.end() && known->second.expired()) store->by_source.erase(known);
  store->room.give_back(first, bytes);
  store->stored_bytes -= bytes;
}

ActivationStore::ActivationStore(std::shared_ptr<files::BlockFile> file, int64_t first,
                                 int64_t bytes, const ActivationStoreOptions& options)
    : impl_(std::make_shared<Impl>(std::move(file), first, bytes, options.in_flight_bytes)) {
  LOCKSTEP_ASSERT(first % AlignedBuffer::kAlignment == 0 && bytes % AlignedBuffer::kAlignment == 0,
                  "the room is whole pages");
}

int64_t ActivationStore::stored_bytes() const { return impl_->stored_bytes; }

ActivationStore::Handle ActivationStore::store(const at::Tensor& tensor) {
  const c10::StorageImpl* const source = tensor.storage().unsafeGetStorageImpl();
  const auto all = static_cast<int64_t>(source->nbytes());
  const bool whole = all <= kLargestShare * static_cast<int64_t>(tensor.nbytes());
  const at::Tensor dense = whole ? tensor : tensor.contiguous();
  Handle handle{.stored = nullptr,
                .sizes = dense.sizes().vec(),
                .strides = dense.strides().vec(),
                .offset = whole ? dense.storage_offset() : 0,
                .dtype = dense.scalar_type()};
  if (whole) {
    const auto known = impl_->by_source.find(source);
    if (known != impl_->by_source.end()) handle.stored = known->second.lock();
    if (handle.stored != nullptr && handle.stored->version == tensor._version()) return handle;
  }
  const int64_t size = whole ? all : static_cast<int64_t>(dense.nbytes());
  handle.stored = std::make_shared<Stored>(impl_, dense, files::whole_pages(size));
  impl_->write(handle.stored, whole ? tensor.storage().data() : dense.data_ptr(), size);
  if (whole) impl_->by_source[source] = handle.stored;
  return handle;
}

at::Tensor ActivationStore::load(const Handle& handle) {
  Stored& stored = *handle.stored;
  Impl& impl = *stored.store;
  impl.end_useless_writes();
  if (!stored.pages) impl.start_reading(stored);
  impl.file->wait(std::exchange(stored.reading, {}));
  stored.loaded = true;
  impl.read_one_before(stored.number);
  return stored.pages->view(handle);
}

ActivationOffloadScope::ActivationOffloadScope(ActivationStore& store)
    : scope_([&store](const at::Tensor& tensor) -> torch_inside::SavedTensorScope::Unpack {
        return [handle = store.store(tensor)] { return ActivationStore::load(handle); };
      }) {}

}  // namespace lockstep::memory
