/// Room of a file by pieces: taken first fit, and given back in any order.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>

namespace lockstep::memory::detail {

class Extents {
 public:
  Extents(int64_t first, int64_t bytes) {
    if (bytes > 0) free_[first] = bytes;
  }

  /// Where `bytes` lie from now on; -1: no piece is as large.
  int64_t take(int64_t bytes) {
    for (auto piece = free_.begin(); piece != free_.end(); ++piece) {
      if (piece->second < bytes) continue;
      const auto [first, room] = *piece;
      free_.erase(piece);
      if (room > bytes) free_[first + bytes] = room - bytes;
      return first;
    }
    return -1;
  }

  void give_back(int64_t first, int64_t bytes) {
    auto next = free_.lower_bound(first);
    if (next != free_.end() && first + bytes == next->first) {
      bytes += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == first) {
        before->second += bytes;
        return;
      }
    }
    free_[first] = bytes;
  }

  /// The pieces that are free; one when all was given back.
  const std::map<int64_t, int64_t>& free() const { return free_; }

 private:
  std::map<int64_t, int64_t> free_;  // bytes by first
};

}  // namespace lockstep::memory::detail
