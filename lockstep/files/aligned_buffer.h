/// Memory for direct reads and writes: it begins at a page, and at a huge page from 2 MiB on.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

namespace lockstep::files {

class AlignedBuffer {
 public:
  static constexpr int64_t kAlignment = 4096;

  /// Nothing is held.
  AlignedBuffer() = default;
  /// `bytes` that hold anything. Throws OutOfMemory.
  explicit AlignedBuffer(int64_t bytes);
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::move(other.data_)), bytes_(std::exchange(other.bytes_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    data_ = std::move(other.data_);
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }

  char* data() const { return data_.get(); }
  float* floats() const { return reinterpret_cast<float*>(data_.get()); }
  int64_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(char* data) const;
  };

  std::unique_ptr<char, Free> data_;
  int64_t bytes_ = 0;
};

/// `bytes` as whole pages.
constexpr int64_t whole_pages(int64_t bytes) {
  return (bytes + AlignedBuffer::kAlignment - 1) / AlignedBuffer::kAlignment *
         AlignedBuffer::kAlignment;
}

}  // namespace lockstep::files
