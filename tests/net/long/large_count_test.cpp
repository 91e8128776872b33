// COLL-3 for bytes: counts and offsets beyond 2^31 between processes, in place in the heap and
// staged from ordinary memory. Takes 4 GiB at a time.
#include <sys/mman.h>

#include <algorithm>

#include "tests/net/ranks.h"
#include "tests/support/available_memory.h"

namespace lockstep::net::testing {
namespace {

constexpr int64_t kCount = (int64_t{1} << 31) + 8;

int64_t different_from(const uint8_t* data, int64_t first, int64_t last, uint8_t wanted) {
  return (last - first) - std::count(data + first, data + last, wanted);
}

void check(Group& group, uint8_t* x) {
  std::fill(x, x + kCount, uint8_t{1});
  group.all_reduce(x, kCount, DType::u8);
  EXPECT_EQ(different_from(x, 0, kCount, 2), 0);
  std::fill(x + kCount - 8, x + kCount, static_cast<uint8_t>(7 + group.rank()));
  group.broadcast(x, kCount, DType::u8, 1);
  EXPECT_EQ(different_from(x, kCount - 8, kCount, 8), 0);
  EXPECT_EQ(different_from(x, 0, kCount - 8, 2), 0);
}

class LongCases : public ::testing::Test {
 protected:
  void SetUp() override {
    if (lockstep::testing::available_gib() < 6) GTEST_SKIP() << "needs 6 GiB of free memory";
  }
};

TEST_F(LongCases, COLL_3_InTheHeap) {
  run_on(Engine::shm, 2, [](const std::shared_ptr<Group>& world) {
    const HeapBlock block = world->allocate(kCount);
    check(*world, static_cast<uint8_t*>(block.data()));
  });
}

TEST_F(LongCases, COLL_3_InOrdinaryMemory) {
  run_on(Engine::shm, 2, [](const std::shared_ptr<Group>& world) {
    void* memory =
        mmap(nullptr, kCount, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    check(*world, static_cast<uint8_t*>(memory));
  });
}

}  // namespace
}  // namespace lockstep::net::testing
