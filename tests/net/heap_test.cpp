#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/units.h"
#include "lockstep/net/world.h"

namespace lockstep::net::testing {
namespace {

int64_t offset_in(uint64_t alignment, const HeapBlock& block) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(block.data()) % alignment);
}

TEST(Heap, AlignsBlocks) {
  const auto world = Endpoint::join(Region::in_process(1), 0, true)->world();
  std::vector<HeapBlock> kept;
  for (const int64_t bytes : {0, 1, 63, 65, 4097}) {
    kept.push_back(world->allocate(bytes));
    EXPECT_EQ(offset_in(64, kept.back()), 0);
    EXPECT_EQ(kept.back().bytes, bytes);
  }
  for (const int64_t bytes : {2 * MiB, 3 * MiB + 1}) {
    kept.push_back(world->allocate(bytes));
    EXPECT_EQ(offset_in(2 * MiB, kept.back()), 0);
  }
}

// Random blocks, each filled with its own byte: none is ever overwritten by another, and all of the
// heap is one piece again when the last has gone.
TEST(Heap, BlocksNeverOverlapAndMergeWhenFreed) {
  const int64_t heap_bytes = 64 * MiB;
  const auto world = Endpoint::join(Region::in_process(1, heap_bytes), 0, true)->world();
  std::vector<std::pair<HeapBlock, char>> live;
  uint64_t state = 1;
  const auto draw = [&] { return state = base::mix64(state); };
  for (int turn = 0; turn < 3000; ++turn) {
    if (live.size() > 20 || (draw() % 3 == 0 && !live.empty())) {
      const size_t i = draw() % live.size();
      const auto* data = static_cast<const char*>(live[i].first.data());
      for (int64_t at = 0; at < live[i].first.bytes; at += 61) ASSERT_EQ(data[at], live[i].second);
      live.erase(live.begin() + static_cast<int64_t>(i));
    } else {
      const int64_t bytes = static_cast<int64_t>(draw() % (draw() % 50 == 0 ? 3 * MiB : 5000));
      live.emplace_back(world->allocate(bytes), static_cast<char>(turn));
      std::memset(live.back().first.data(), static_cast<char>(turn), static_cast<size_t>(bytes));
    }
  }
  live.clear();
  EXPECT_NO_THROW(world->allocate(heap_bytes));
}

TEST(Heap, SaysWhenItIsFull) {
  const auto world = Endpoint::join(Region::in_process(1, 16 * MiB), 0, true)->world();
  const auto most = world->allocate(10 * MiB);
  try {
    world->allocate(10 * MiB);
    FAIL();
  } catch (const OutOfMemory& error) {
    EXPECT_NE(std::string(error.what()).find("10.0 MiB of 16.0 MiB in use"), std::string::npos)
        << error.what();
  }
  world->allocate(4 * MiB);  // what is left still serves
}

TEST(Heap, ABlockOutlivesItsGroup) {
  HeapBlock block;
  {
    const auto world = Endpoint::join(Region::in_process(1), 0, true)->world();
    block = world->allocate(1000);
  }
  std::memset(block.data(), 1, 1000);
}

}  // namespace
}  // namespace lockstep::net::testing
