#include "lockstep/plan/buckets.h"

#include <algorithm>

#include "lockstep/base/assert.h"

namespace lockstep::plan {
namespace {

int64_t padded(int64_t numel) {
  return (numel + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
}

}  // namespace

BucketPlan plan_buckets(const ParamTable& table, int64_t first_bucket_bytes, int64_t bucket_bytes,
                        int64_t bytes_per_element) {
  LOCKSTEP_ASSERT(bytes_per_element > 0, "an element has a width");
  BucketPlan plan;
  plan.slots.resize(table.params.size());

  int64_t limit = std::min(first_bucket_bytes, bucket_bytes);
  const Param* before = nullptr;  // in the bucket at hand
  for (size_t i = table.params.size(); i-- > 0;) {
    const Param& param = table.params[i];
    Slot& slot = plan.slots[i];
    slot.param = static_cast<int>(i);
    slot.numel = param.numel;
    if (!param.trainable) continue;

    const int64_t numel = padded(param.numel);
    const bool full =
        before != nullptr && (plan.buckets.back().numel + numel) * bytes_per_element > limit;
    const bool apart = before != nullptr &&
                       (before->chunk() != param.chunk() || before->is_across || param.is_across);
    before = &param;
    if (plan.buckets.empty() || full || apart) {
      if (full) limit = bucket_bytes;
      plan.buckets.push_back({.offset = plan.numel, .numel = 0, .params = {}});
    }
    Bucket& bucket = plan.buckets.back();
    slot.bucket = static_cast<int>(plan.buckets.size()) - 1;
    slot.offset = plan.numel;
    bucket.params.push_back(slot.param);
    bucket.numel += numel;
    plan.numel += numel;
  }
  return plan;
}

}  // namespace lockstep::plan
