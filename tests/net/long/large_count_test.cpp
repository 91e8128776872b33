// COLL-3 for bytes between processes: in place in the heap, staged from ordinary memory, and by
// plans over messages. Takes up to 10 GiB at a time.
#include "tests/net/large_count.h"

#include "tests/net/ranks.h"
#include "tests/support/available_memory.h"

namespace lockstep::net::testing {
namespace {

using plan::Algorithm;
using plan::Collective;

void run_large(int gib, bool in_heap, const plan::AlgorithmTable& table = {}) {
  if (lockstep::testing::available_gib() < gib) {
    GTEST_SKIP() << "needs " << gib << " GiB of free memory";
  }
  run_on(Engine::shm, 2, [&](const std::shared_ptr<Group>& world) {
    world->set_algorithms(table);
    if (in_heap) {
      const HeapBlock block = world->allocate(kLargeCount);
      EXPECT_EQ(large_count_wrong(*world, static_cast<uint8_t*>(block.data())), "");
    } else {
      const OwnMemory memory(kLargeCount);
      EXPECT_EQ(large_count_wrong(*world, memory.data()), "");
    }
  });
}

TEST(LongCases, COLL_3_InTheHeap) { run_large(6, true); }
TEST(LongCases, COLL_3_InOrdinaryMemory) { run_large(6, false); }

// A plan's scratch is up to as long as the tensor again.
TEST(LongCases, COLL_3_ByPlansInTheHeap) {
  run_large(10, true,
            {.rules = {{Collective::all_reduce, Algorithm::ring},
                       {Collective::broadcast, Algorithm::binomial}},
             .hosts = {}});
}

TEST(LongCases, COLL_3_ByPlansInOrdinaryMemory) {
  run_large(10, false,
            {.rules = {{Collective::all_reduce, Algorithm::tree},
                       {Collective::broadcast, Algorithm::scatter_all_gather}},
             .hosts = {}});
}

}  // namespace
}  // namespace lockstep::net::testing
