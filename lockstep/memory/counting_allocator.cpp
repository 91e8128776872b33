#include "lockstep/memory/counting_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <new>
#include <utility>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/memory/account.h"
#include "lockstep/memory/detail/size_classes.h"

namespace lockstep::memory {
namespace {

constexpr int64_t kHugePage = 2 * MiB;
constexpr int64_t kLargest = int64_t{1} << 46;  // more is a mistake in a shape

// Stands before the bytes that LibTorch sees, in the same block: the data pointer alone leads back
// to it, as `raw_deleter` asks for.
struct alignas(64) Header {
  int64_t bytes;       // asked for
  int32_t size_class;  // the block has detail::class_bytes(size_class), this header included
  Kind kind;           // what it was taken for, in
  Account* account;    // this account
  Header* next;        // in the free list of the class
};
static_assert(sizeof(Header) == 64, "the data keep the alignment of the block");

// A sanitizer is to see each use after free: nothing is kept then.
#ifdef LOCKSTEP_SANITIZED
constexpr bool kKeepFreed = false;
#else
constexpr bool kKeepFreed = true;
#endif

class Blocks {
 public:
  void* take(int64_t bytes) {
    if (bytes < 0 || bytes > kLargest) refuse(bytes);
    Account& account = current_account();
    const Kind kind = current_kind();
    account.take(kind, bytes);
    const int size_class = detail::class_of(bytes + static_cast<int64_t>(sizeof(Header)));
    Header* header = take_free(size_class);
    if (header == nullptr) header = map(size_class, account);
    if (header == nullptr) {
      account.add(kind, -bytes);
      refuse(bytes);
    }
    header->bytes = bytes;
    header->size_class = size_class;
    raise(live_peak_, live_ += detail::class_bytes(size_class));
    raise(peak_, current_ += bytes);
    header->kind = kind;
    header->account = &account;
    return header + 1;
  }

  void give_back(void* data) {
    Header* header = static_cast<Header*>(data) - 1;
    const int64_t block_bytes = detail::class_bytes(header->size_class);
    current_ -= header->bytes;
    header->account->add(header->kind, -header->bytes);
    live_ -= block_bytes;
    if (!kKeepFreed) {
      std::free(header);
      return;
    }
    cached_ += block_bytes;
    FreeList& list = lists_[static_cast<size_t>(header->size_class)];
    const std::lock_guard lock(list.mutex);
    header->next = list.first;
    list.first = header;
  }

  MemoryCount count() const {
    return {.current_bytes = current_, .peak_bytes = peak_, .cached_bytes = cached_};
  }

  void reset_peak() { peak_ = current_.load(); }

  void release_cached() {
    for (size_t i = 0; i < lists_.size(); ++i) {
      Header* header = nullptr;
      {
        const std::lock_guard lock(lists_[i].mutex);
        header = std::exchange(lists_[i].first, nullptr);
      }
      while (header != nullptr) {
        Header* const next = header->next;
        std::free(header);
        cached_ -= detail::class_bytes(static_cast<int>(i));
        header = next;
      }
    }
  }

 private:
  struct FreeList {
    std::mutex mutex;  // guards the chain from `first` on
    Header* first = nullptr;
  };

  static void raise(std::atomic<int64_t>& most, int64_t value) {
    int64_t seen = most.load(std::memory_order_relaxed);
    while (value > seen && !most.compare_exchange_weak(seen, value)) {
    }
  }

  [[noreturn]] void refuse(int64_t bytes) const {
    throw OutOfMemory(base::str("no memory for a tensor of ", base::bytes_text(bytes), ": ",
                                base::bytes_text(current_), " of tensors are alive, at most ",
                                base::bytes_text(peak_),
                                " were. A smaller data.micro_batch needs less for activations."));
  }

  Header* take_free(int size_class) {
    FreeList& list = lists_[static_cast<size_t>(size_class)];
    const std::lock_guard lock(list.mutex);
    Header* header = list.first;
    if (header != nullptr) {
      list.first = header->next;
      cached_ -= detail::class_bytes(size_class);
    }
    return header;
  }

  // Only a fresh block makes the process hold more than before, so the limits are kept here. One is
  // little more than was ever alive at once: past it the kept blocks have sizes that nobody asks
  // for now. Null: the system has no more.
  Header* map(int size_class, const Account& account) {
    const int64_t bytes = detail::class_bytes(size_class);
    const int64_t limit = live_peak_ + live_peak_ / 4 + 64 * MiB;
    if (cached_ > 0 && (live_ + cached_ + bytes > limit || past_limit(account, cached_))) {
      release_cached();
    }
    void* block = aligned(bytes);
    if (block == nullptr) {
      release_cached();
      block = aligned(bytes);
    }
    return block == nullptr ? nullptr : new (block) Header{};
  }

  static void* aligned(int64_t bytes) {
    const auto size = static_cast<size_t>(bytes);
    const bool huge = bytes >= kHugePage;
    void* block = nullptr;
    if (posix_memalign(&block, huge ? kHugePage : alignof(Header), size) != 0) return nullptr;
    // Whole pages only: the last, shared with the heap's own records, stays as it is.
    if (huge) madvise(block, size / kHugePage * kHugePage, MADV_HUGEPAGE);
    return block;
  }

  std::array<FreeList, detail::kClasses> lists_;
  std::atomic<int64_t> current_{0};    // bytes asked for and alive
  std::atomic<int64_t> peak_{0};       // of current_, since the last reset
  std::atomic<int64_t> live_{0};       // blocks handed out, in full
  std::atomic<int64_t> live_peak_{0};  // of live_, ever
  std::atomic<int64_t> cached_{0};     // blocks in the lists, in full
};

// Never destroyed: static tensors may be freed after it would be.
Blocks& blocks() {
  static Blocks* const all = new Blocks;
  return *all;
}

void deleter(void* data) {
  if (data != nullptr) blocks().give_back(data);
}

struct CountingAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) const override {
    void* const data = bytes == 0 ? nullptr : blocks().take(static_cast<int64_t>(bytes));
    return {data, data, &deleter, c10::Device(c10::DeviceType::CPU)};
  }

  // LibTorch hands data out as bare pointers where this is given (oneDNN calls rely on it).
  c10::DeleterFnPtr raw_deleter() const override { return &deleter; }
};

}  // namespace

void install_counting_allocator() {
  static CountingAllocator allocator;
  constexpr uint8_t kPriority = 100;  // above LibTorch's own
  c10::SetCPUAllocator(&allocator, kPriority);
}

MemoryCount tensor_memory() { return blocks().count(); }

void reset_peak() { blocks().reset_peak(); }

void release_cached_blocks() { blocks().release_cached(); }

}  // namespace lockstep::memory
