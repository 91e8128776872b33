/// A caching allocator for LibTorch's CPU tensors that counts what is alive.
///
/// Freed blocks are kept by size class and used again: glibc would map and unmap every large tensor.
/// Large blocks are asked for in huge pages.
#pragma once

#include <cstdint>

namespace lockstep::memory {

/// Becomes LibTorch's CPU allocator; call first thing in main, once per process.
void install_counting_allocator();

struct MemoryCount {
  int64_t current_bytes = 0;   // alive now
  int64_t peak_bytes = 0;      // the most that was alive since the last reset
  int64_t cached_bytes = 0;    // freed, kept for reuse
};

/// Of the process (all ranks that are its threads).
MemoryCount tensor_memory();
void reset_peak();

}  // namespace lockstep::memory
