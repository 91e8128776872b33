// COLL-3 for tensors: counts and offsets beyond 2^31. Takes 4 GiB and some seconds.
#include <fstream>

#include "tests/comm/on_ranks.h"

namespace lockstep {
namespace {

constexpr int64_t kCount = (int64_t{1} << 31) + 8;

int64_t available_gib() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  for (int64_t kib = 0; file >> name >> kib; file.ignore(64, '\n')) {
    if (name == "MemAvailable:") return kib >> 20;
  }
  return 0;
}

void check(ProcessGroup& group, at::Tensor x) {
  ASSERT_EQ(x.numel(), kCount);
  x.fill_(1);
  group.all_reduce(x).wait();
  EXPECT_EQ(x.numel(), kCount);
  EXPECT_TRUE(at::equal(x.narrow(0, kCount - 8, 8), at::full({8}, 2, at::kByte)));
  EXPECT_TRUE(at::equal(x.narrow(0, (int64_t{1} << 31) - 8, 16), at::full({16}, 2, at::kByte)));
  EXPECT_EQ(x.min().item<int>(), 2);
  EXPECT_EQ(x.max().item<int>(), 2);

  x.narrow(0, kCount - 8, 8).fill_(7 + group.rank());
  group.broadcast(x, 1).wait();
  EXPECT_TRUE(at::equal(x.narrow(0, kCount - 8, 8), at::full({8}, 8, at::kByte)));
  EXPECT_EQ(x[kCount - 9].item<int>(), 2);
}

TEST(LongCases, COLL_3_CountsAndOffsetsBeyond31Bits) {
  if (available_gib() < 6) GTEST_SKIP() << "needs 6 GiB of free memory";
  test::on_ranks({2},
                 [](ProcessGroup& group) { check(group, group.allocate({kCount}, at::kByte)); });
}

}  // namespace
}  // namespace lockstep
