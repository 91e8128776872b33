/// COLL-3 for bytes: counts and offsets beyond 2^31.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "lockstep/base/str.h"
#include "lockstep/net/group.h"

namespace lockstep::net::testing {

inline constexpr int64_t kLargeCount = (int64_t{1} << 31) + 8;

/// Ordinary memory, which peers cannot reach; taken when it is touched.
class OwnMemory {
 public:
  explicit OwnMemory(int64_t bytes)
      : bytes_(static_cast<size_t>(bytes)),
        memory_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (memory_ == MAP_FAILED) throw std::runtime_error("no memory");
  }
  ~OwnMemory() { munmap(memory_, bytes_); }
  OwnMemory(const OwnMemory&) = delete;
  OwnMemory& operator=(const OwnMemory&) = delete;
  uint8_t* data() const { return static_cast<uint8_t*>(memory_); }

 private:
  size_t bytes_;
  void* memory_;
};

/// All-reduce and broadcast of kLargeCount bytes at `x` on two ranks: what is wrong with the
/// results.
inline std::string large_count_wrong(Group& group, uint8_t* x) {
  std::string wrong;
  const auto compare = [&](const char* what, int64_t first, int64_t last, int wanted) {
    const int64_t right = std::count(x + first, x + last, static_cast<uint8_t>(wanted));
    if (right != last - first) {
      wrong += base::str(" ", what, ": ", last - first - right, " bytes are wrong.");
    }
  };
  std::fill(x, x + kLargeCount, static_cast<uint8_t>(3 + 2 * group.rank()));
  std::fill(x + kLargeCount - 8, x + kLargeCount, uint8_t{1});
  group.all_reduce(x, kLargeCount, DType::u8);
  compare("all_reduce", 0, kLargeCount - 8, 8);
  compare("end of all_reduce", kLargeCount - 8, kLargeCount, 2);
  std::fill(x + kLargeCount - 8, x + kLargeCount, static_cast<uint8_t>(17 + group.rank()));
  group.broadcast(x, kLargeCount, DType::u8, 1);
  compare("broadcast", 0, kLargeCount - 8, 8);
  compare("end of broadcast", kLargeCount - 8, kLargeCount, 18);
  return wrong;
}

}  // namespace lockstep::net::testing
