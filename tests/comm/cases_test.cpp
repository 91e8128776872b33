// Situations that once went wrong elsewhere, by their names in the list of cases: tensors' face.
#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "tests/comm/on_ranks.h"

namespace lockstep {
namespace {

using test::in_heap;
using test::message_of;
using test::on_ranks;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A tensor that is not dense is refused before anything is sent, and what the message advises gives
// the sum: nobody is handed an untouched original.
TEST(Cases, COLL_1_ATransposedTensorIsNeverLeftUnsummed) {
  on_ranks({2}, [](ProcessGroup& group) {
    const at::Tensor x = at::full({2, 3}, group.rank() + 1.0).t();
    const std::string error = message_of<UsageError>([&] { group.all_reduce(x).wait(); });
    EXPECT_THAT(error, AllOf(HasSubstr("of shape [3, 2] with strides [1, 3] is not contiguous"),
                             HasSubstr("Pass x.contiguous(), and copy the result back")));
    EXPECT_TRUE(at::equal(x, at::full({3, 2}, group.rank() + 1.0)));
    const at::Tensor dense = x.contiguous();
    group.all_reduce(dense).wait();
    x.copy_(dense);
    EXPECT_TRUE(at::equal(x, at::full({3, 2}, 3.0)));
  });
}

TEST(Cases, COLL_4_AnAverageIsOverRanksAndRefusedForIntegers) {
  on_ranks({2}, [](ProcessGroup& group) {
    for (const at::ScalarType type : {at::kInt, at::kLong, at::kByte, at::kBool}) {
      const at::Tensor whole = at::full({1}, group.rank() == 0 ? 1 : 4, type);
      const at::Tensor before = whole.clone();
      EXPECT_THAT(
          message_of<UsageError>([&] { group.all_reduce(whole, ReduceOp::average).wait(); }),
          HasSubstr("an average of "));
      EXPECT_TRUE(at::equal(whole, before));
    }
    for (const bool shared : {true, false}) {
      at::Tensor x = at::full({5}, group.rank() == 0 ? 1.0 : 3.0);
      if (shared) x = in_heap(group, x);
      group.all_reduce(x, ReduceOp::average).wait();
      EXPECT_TRUE(at::equal(x, at::full({5}, 2.0)));
    }
    at::Tensor slices = at::arange(4, at::kFloat) * (group.rank() == 0 ? 1 : 3);
    at::Tensor own = at::zeros({2});
    group.reduce_scatter(slices, own, ReduceOp::average).wait();
    EXPECT_TRUE(at::equal(own, (at::arange(2) + 2 * group.rank()).to(at::kFloat) * 2));
  });
}

TEST(Cases, COLL_5_HalfTypesAreSummedWideAndRoundedOnce) {
  on_ranks({4}, [](ProcessGroup& group) {
    at::Tensor large = at::full({9}, 40000.0, at::kHalf);
    group.all_reduce(large, ReduceOp::average).wait();
    EXPECT_TRUE(at::equal(large, at::full({9}, 40000.0, at::kHalf)));
    at::Tensor small = at::full({9}, group.rank() == 0 ? 256.0 : 1.0, at::kBFloat16);
    group.all_reduce(small).wait();
    EXPECT_TRUE(at::equal(small, at::full({9}, 260.0, at::kBFloat16)));
  });
}

}  // namespace
}  // namespace lockstep
