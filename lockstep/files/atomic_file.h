/// A file that appears under its name whole or not at all.
///
/// The bytes go to a temporary name beside the target; `commit` makes them durable (fsync) and
/// renames. A crash at any moment leaves the old file; a reader that has the old one open or mapped
/// keeps reading it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::files {

class AtomicFile {
 public:
  /// Throws StateError if the temporary file cannot be made.
  explicit AtomicFile(std::string path);
  /// Removes what was not committed.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// The file will have so many bytes: room for them is taken in one piece, where there is.
  void expect(int64_t bytes);

  /// Throws StateError naming the file, the bytes written so far, and the system's reason.
  void write(const void* data, int64_t bytes);
  void write(std::string_view text) { write(text.data(), static_cast<int64_t>(text.size())); }

  /// Replaces the first bytes, already written: a header that counts what follows it.
  void write_at_front(std::string_view bytes);

  /// Puts the file in place. Throws StateError; the old file then still stands.
  void commit();

 private:
  void flush();
  void write_through(const char* data, int64_t bytes);
  [[noreturn]] void fail(const char* action) const;

  std::string path_;
  std::string temporary_;
  std::string buffer_;  // small writes gather here
  int64_t written_ = 0;
  int fd_ = -1;
  bool committed_ = false;
};

}  // namespace lockstep::files
