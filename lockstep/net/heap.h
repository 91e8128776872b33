/// The allocator of one rank's part of the shared heap. Its books are private to the rank; only the
/// memory is shared.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

namespace lockstep::net {

class Region;

class Heap : public std::enable_shared_from_this<Heap> {
 public:
  Heap(std::shared_ptr<Region> region, char* base, int64_t bytes);

  /// Throws OutOfMemory. The block is given back when the last copy goes, and keeps the region.
  std::shared_ptr<void> allocate(int64_t bytes);

 private:
  void give_back(int64_t offset, int64_t bytes);

  std::shared_ptr<Region> region_;
  char* base_;
  int64_t bytes_;
  std::mutex mutex_;                 // guards free_ and used_
  std::map<int64_t, int64_t> free_;  // offset -> bytes; neighbours are merged
  int64_t used_ = 0;
};

}  // namespace lockstep::net
