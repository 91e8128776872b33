/// An open file of a fixed size that has no name: whatever ends the process, nothing is left.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::files::detail {

class TemporaryFile {
 public:
  /// In `folder`, with room for `bytes` reserved; they read as zeros. Reads and writes go past the
  /// page cache (O_DIRECT) where the file system lets them and `want_direct`. Throws
  /// EnvironmentError naming the folder: it is not there, or has no room.
  TemporaryFile(const std::string& folder, int64_t bytes, bool want_direct);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  int descriptor() const { return descriptor_; }
  bool direct() const { return direct_; }

 private:
  void open_in(const std::string& folder, bool want_direct);
  void reserve(const std::string& folder, int64_t bytes) const;

  int descriptor_ = -1;
  bool direct_ = false;
  std::string still_named_;  // where a name cannot go while the file is open: it goes with the file
};

}  // namespace lockstep::files::detail
