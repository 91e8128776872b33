// COLL-3 for tensors: counts and offsets beyond 2^31. Takes 4 GiB and some seconds.

#include "tests/comm/on_ranks.h"
#include "tests/support/available_memory.h"

namespace lockstep {
namespace {

constexpr int64_t kCount = (int64_t{1} << 31) + 8;

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
  if (lockstep::testing::available_gib() < 6) GTEST_SKIP() << "needs 6 GiB of free memory";
  test::on_ranks({2},
                 [](ProcessGroup& group) { check(group, group.allocate({kCount}, at::kByte)); });
}

}  // namespace
}  // namespace lockstep
