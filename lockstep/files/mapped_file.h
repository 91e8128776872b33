/// A regular file mapped into memory, read-only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::files {

class MappedFile {
 public:
  /// Throws std::system_error: which of our errors a missing file is, only the caller knows.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  const unsigned char* data() const { return data_; }
  int64_t size() const { return size_; }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(data_), static_cast<size_t>(size_)};
  }

  /// Whether somebody has cut the file since it was mapped. To touch a page that is gone would end
  /// the process with SIGBUS, so readers ask before they copy. (Lockstep replaces files by rename,
  /// which leaves a mapping whole; `cp new.bin train.bin` does not.)
  bool was_cut() const;

  /// Lets go of the memory of pages already copied: a file larger than memory can be read through.
  void release(int64_t offset, int64_t bytes) const;

 private:
  std::string path_;
  const unsigned char* data_ = nullptr;
  int64_t size_ = 0;
  int fd_ = -1;
};

}  // namespace lockstep::files
