#include "lockstep/files/aligned_buffer.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdlib>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"

namespace lockstep::files {
namespace {

constexpr int64_t kHugePage = 2 * MiB;
std::atomic<int64_t> alive{0};

}  // namespace

int64_t AlignedBuffer::alive_bytes() { return alive; }

AlignedBuffer::~AlignedBuffer() {
  std::free(data_);
  alive -= bytes_;
}

AlignedBuffer::AlignedBuffer(int64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  const bool huge = bytes >= kHugePage;
  const auto size = static_cast<size_t>(whole_pages(bytes));
  void* data = nullptr;
  if (posix_memalign(&data, huge ? kHugePage : kAlignment, size) != 0) {
    throw OutOfMemory(base::str("no memory for a buffer of ", base::bytes_text(bytes),
                                " for reading and writing a file."));
  }
  data_ = static_cast<char*>(data);
  alive += bytes;
  // Fewer pages to pin for each transfer. Whole ones only: the last is shared with the heap.
  if (huge) madvise(data, size / kHugePage * kHugePage, MADV_HUGEPAGE);
}

}  // namespace lockstep::files
