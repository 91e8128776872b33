/// Bytes as they come, in whole lines.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace lockstep::launch {

/// Calls back with each line, its newline included. Any bytes may be in a line. One longer than
/// `most_bytes` is handed on in parts of that length, each with a newline of its own.
class LineSplitter {
 public:
  static constexpr size_t kMostBytes = size_t{1} << 20;
  using Take = std::function<void(std::string_view line)>;

  explicit LineSplitter(Take take, size_t most_bytes = kMostBytes)
      : take_(std::move(take)), most_bytes_(most_bytes) {}

  void add(std::string_view bytes);
  /// No more will come: what is left is a line, though its newline is missing.
  void finish();

 private:
  Take take_;
  size_t most_bytes_;
  std::string begun_;  // the line whose end has not come
};

}  // namespace lockstep::launch
