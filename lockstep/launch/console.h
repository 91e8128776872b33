/// A descriptor of this process that others may read slowly: what is meant for it waits here, and
/// nobody is held up. The descriptor's own settings stay as they are: it is shared with whoever
/// started this program.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::launch {

class Console {
 public:
  /// `fd` stays the caller's.
  explicit Console(int fd) : fd_(fd) {}

  int fd() const { return fd_; }
  void add(std::string_view text);
  bool has_more() const { return !waiting_.empty(); }
  /// So much waits that whoever writes here should pause.
  bool is_full() const { return waiting_.size() > kPlenty; }
  /// Writes a piece, which a descriptor that poll calls writable takes at once.
  void write_some();
  /// Why nothing more can be written; empty while all is well. What is added then is dropped.
  const std::string& error() const { return error_; }

 private:
  static constexpr size_t kPlenty = size_t{1} << 20;

  int fd_;
  std::string waiting_;
  size_t written_ = 0;  // of waiting_
  std::string error_;
};

}  // namespace lockstep::launch
