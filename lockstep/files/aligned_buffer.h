/// Memory for direct reads and writes: it begins at a page, and at a huge page from 2 MiB on.
#pragma once

#include <cstdint>
#include <utility>

namespace lockstep::files {

class AlignedBuffer {
 public:
  static constexpr int64_t kAlignment = 4096;

  /// Nothing is held.
  AlignedBuffer() = default;
  /// `bytes` that hold anything. Throws OutOfMemory.
  explicit AlignedBuffer(int64_t bytes);
  ~AlignedBuffer();
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  char* data() const { return data_; }
  float* floats() const { return reinterpret_cast<float*>(data_); }
  int64_t bytes() const { return bytes_; }

  /// Of all buffers of the process.
  static int64_t alive_bytes();

 private:
  char* data_ = nullptr;
  int64_t bytes_ = 0;
};

/// `bytes` as whole pages.
constexpr int64_t whole_pages(int64_t bytes) {
  return (bytes + AlignedBuffer::kAlignment - 1) / AlignedBuffer::kAlignment *
         AlignedBuffer::kAlignment;
}

}  // namespace lockstep::files
