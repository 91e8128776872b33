/// A file of whole lines that grows: metrics.jsonl. A reader, or a crash, never meets half a line
/// but the one being written.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::files {

class LineFile {
 public:
  enum class Start { empty, behind_what_is_there };

  /// Makes the file; one that is there is emptied, or goes on. Throws StateError naming the file
  /// and the reason.
  explicit LineFile(std::string path, Start start = Start::empty);
  ~LineFile();
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  /// Hands the line and a line feed to the system. Throws StateError naming file, bytes and the
  /// reason; the file then ends with the line before.
  void add(std::string_view line);

  int64_t bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int64_t bytes_ = 0;  // of whole lines
  int fd_ = -1;
};

}  // namespace lockstep::files
