/// A caching allocator for LibTorch's CPU tensors that counts what is alive.
///
/// Freed blocks are kept by size class and used again: glibc would map and unmap every large
/// tensor. Blocks from 2 MiB on are asked for in huge pages. Kept blocks are freed when the process
/// would come to hold much more (a quarter, and 64 MiB) than was ever alive at once, or a rank with
/// a limit (account.h) more than that. Builds with a sanitizer keep none. Data are aligned to 64
/// bytes.
///
/// Counts what tensors asked for, in bytes, in total and by rank and kind (account.h); memory that
/// LibTorch did not allocate (shared memory, file maps) is not seen. All functions may be called
/// from any thread.
#pragma once

#include <cstdint>

namespace lockstep::memory {

/// Becomes LibTorch's CPU allocator; call first thing in main. Tensors made before are not counted.
/// Allocations then throw OutOfMemory, saying what is alive.
void install_counting_allocator();

struct MemoryCount {
  int64_t current_bytes = 0;  // alive now
  int64_t peak_bytes = 0;     // the most that was alive since the last reset
  int64_t cached_bytes = 0;   // freed and kept for reuse, in whole blocks
};

/// Of the process (all ranks that are its threads).
MemoryCount tensor_memory();
void reset_peak();

/// Gives back to the system what is kept for reuse.
void release_cached_blocks();

}  // namespace lockstep::memory
