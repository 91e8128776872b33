#include "lockstep/net/heap.h"

#include <sys/mman.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/net/world.h"

namespace lockstep::net {
namespace {

constexpr int64_t kHugePage = 2 * MiB;

int64_t round_up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

}  // namespace

Heap::Heap(std::shared_ptr<Region> region, char* base, int64_t bytes)
    : region_(std::move(region)), base_(base), bytes_(bytes), free_{{0, bytes}} {}

std::shared_ptr<void> Heap::allocate(int64_t bytes) {
  if (bytes < 0) throw UsageError(base::str("allocate: ", bytes, " bytes"));
  const bool large = bytes >= kHugePage;
  const int64_t alignment = large ? kHugePage : 64;
  if (bytes > bytes_) bytes = bytes_ + 1;  // cannot fit; and rounding must not overflow
  const int64_t wanted = round_up(std::max<int64_t>(bytes, 1), alignment);
  int64_t start = -1;
  {
    const std::lock_guard lock(mutex_);
    for (auto gap = free_.begin(); gap != free_.end(); ++gap) {
      const auto [offset, size] = *gap;
      const int64_t aligned = round_up(offset, alignment);
      if (aligned + wanted > offset + size) continue;
      free_.erase(gap);
      if (aligned > offset) free_.emplace(offset, aligned - offset);
      if (aligned + wanted < offset + size) {
        free_.emplace(aligned + wanted, offset + size - aligned - wanted);
      }
      start = aligned;
      used_ += wanted;
      break;
    }
    if (start < 0) {
      throw OutOfMemory(base::str("the shared heap of this rank is full: ", base::bytes_text(bytes),
                                  " asked for, ", base::bytes_text(used_), " of ",
                                  base::bytes_text(bytes_),
                                  " in use. Enlarge heap_bytes of Region::create."));
    }
  }
  if (large) madvise(base_ + start, wanted, MADV_HUGEPAGE);  // a wish: not every kernel grants it
  return {base_ + start,
          [heap = shared_from_this(), start, wanted](void*) { heap->give_back(start, wanted); }};
}

void Heap::give_back(int64_t offset, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  used_ -= bytes;
  const auto after = free_.lower_bound(offset);
  if (after != free_.end() && after->first == offset + bytes) {
    bytes += after->second;
    free_.erase(after);
  }
  const auto next = free_.lower_bound(offset);
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  free_.emplace(offset, bytes);
}

}  // namespace lockstep::net
