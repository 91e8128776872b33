#include "lockstep/plan/buckets.h"

#include <set>

#include "lockstep/base/units.h"
#include "tests/plan/property.h"

namespace lockstep::plan {
namespace {

ParamTable table_of(const std::vector<int64_t>& sizes, const std::set<int>& frozen = {}) {
  std::vector<ParamDeclaration> declared;
  for (size_t i = 0; i < sizes.size(); ++i) {
    ParamDeclaration param;
    param.name = "p" + std::to_string(i);
    param.shape = {sizes[i]};
    param.trainable = !frozen.contains(static_cast<int>(i));
    declared.push_back(param);
  }
  return make_param_table(declared, {});
}

std::vector<std::vector<int>> params_of(const BucketPlan& plan) {
  std::vector<std::vector<int>> params;
  for (const Bucket& bucket : plan.buckets) params.push_back(bucket.params);
  return params;
}

TEST(Buckets, FillFromTheLastLayerAndTheFirstIsSmall) {
  // 64 bytes a slot; the first bucket takes one, the others three.
  const BucketPlan plan = plan_buckets(table_of({16, 16, 16, 16, 16, 16}), 64, 192);
  EXPECT_EQ(params_of(plan), (std::vector<std::vector<int>>{{5}, {4, 3, 2}, {1, 0}}));
  EXPECT_EQ(plan.numel, 96);
  EXPECT_EQ(plan.slots[5].offset, 0);
  EXPECT_EQ(plan.slots[0].offset, 80);
}

TEST(Buckets, AParameterLargerThanTheLimitTravelsAlone) {
  const BucketPlan plan = plan_buckets(table_of({16, 1000, 16, 16}), 128, 128);
  EXPECT_EQ(params_of(plan), (std::vector<std::vector<int>>{{3, 2}, {1}, {0}}));
  EXPECT_EQ(plan.buckets[1].numel, 1008);

  const BucketPlan large_first = plan_buckets(table_of({16, 16, 1000}), 64, 256);
  EXPECT_EQ(params_of(large_first), (std::vector<std::vector<int>>{{2}, {1, 0}}));
}

TEST(Buckets, TheFirstLimitIsCappedAtTheOther) {
  const BucketPlan plan = plan_buckets(table_of({16, 16, 16, 16}), 1 * MiB, 128);
  EXPECT_EQ(params_of(plan), (std::vector<std::vector<int>>{{3, 2}, {1, 0}}));
}

TEST(Buckets, LeaveOutWhatIsNotTrained) {
  const BucketPlan plan = plan_buckets(table_of({16, 16, 16}, /*frozen=*/{0, 2}), 1024, 1024);
  EXPECT_EQ(params_of(plan), (std::vector<std::vector<int>>{{1}}));
  EXPECT_EQ(plan.slots[0].bucket, -1);
  EXPECT_EQ(plan.slots[1].bucket, 0);
  EXPECT_EQ(plan.slots[2].bucket, -1);
  EXPECT_EQ(plan.slots[2].param, 2);
}

TEST(Buckets, OfNothing) {
  EXPECT_TRUE(plan_buckets(table_of({}), 1024, 1024).buckets.empty());
  EXPECT_TRUE(plan_buckets(table_of({3}, {0}), 1024, 1024).buckets.empty());
  const BucketPlan empty_param = plan_buckets(table_of({0, 4}), 1024, 1024);
  EXPECT_EQ(params_of(empty_param), (std::vector<std::vector<int>>{{1, 0}}));
  EXPECT_EQ(empty_param.slots[0].numel, 0);
}

RC_GTEST_PROP(Buckets, HoldEveryTrainedParameterOnceAndKeepTheirLimit, ()) {
  const auto sizes = *rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(0, 200));
  std::set<int> frozen;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (*rc::gen::inRange(0, 4) == 0) frozen.insert(static_cast<int>(i));
  }
  const int64_t first_limit = *rc::gen::inRange<int64_t>(1, 1000);
  const int64_t limit = *rc::gen::inRange<int64_t>(1, 1000);
  const ParamTable table = table_of(sizes, frozen);
  const BucketPlan plan = plan_buckets(table, first_limit, limit);

  int64_t at = 0;
  int next = static_cast<int>(sizes.size());  // parameters come in falling order
  size_t trained = 0;
  for (size_t b = 0; b < plan.buckets.size(); ++b) {
    const Bucket& bucket = plan.buckets[b];
    RC_ASSERT(bucket.offset == at);
    RC_ASSERT(!bucket.params.empty());
    const int64_t most = b == 0 ? std::min(first_limit, limit) : limit;
    if (bucket.params.size() > 1) RC_ASSERT(bucket.numel * 4 <= most);
    for (const int param : bucket.params) {
      RC_ASSERT(param < next);
      next = param;
      RC_ASSERT(!frozen.contains(param));
      const Slot& slot = plan.slots[static_cast<size_t>(param)];
      RC_ASSERT(slot.param == param);
      RC_ASSERT(slot.bucket == static_cast<int>(b));
      RC_ASSERT(slot.offset % kSlotAlignment == 0);
      RC_ASSERT(slot.offset >= at);
      RC_ASSERT(slot.offset - at < kSlotAlignment);
      at = slot.offset + slot.numel;
      ++trained;
    }
    RC_ASSERT(at <= bucket.offset + bucket.numel);
    at = bucket.offset + bucket.numel;
  }
  RC_ASSERT(at == plan.numel);
  RC_ASSERT(trained == sizes.size() - frozen.size());
}

}  // namespace
}  // namespace lockstep::plan
