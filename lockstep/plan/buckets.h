/// Which gradients travel together.
///
/// Buckets fill in reverse order of the module tree, since backward reaches the last layer first.
/// The first bucket is small, so that communication starts while backward is still young.
/// Source  Li et al. 2020, "PyTorch Distributed", VLDB 13(12); docs/concepts/buckets_and_overlap.md
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/plan/param_table.h"

namespace lockstep::plan {

/// Slots start on multiples of 16 elements: 64 bytes, a cache line.
inline constexpr int64_t kSlotAlignment = 16;

struct Slot {
  int param = -1;  // index in ParamTable::params
  int bucket = -1;
  int64_t offset = 0;  // elements from the start of the flat buffer of all buckets
  int64_t numel = 0;
};

struct Bucket {
  int64_t offset = 0;       // elements from the start of the flat buffer
  int64_t numel = 0;        // padding between slots included
  std::vector<int> params;  // in the order of their slots
};

struct BucketPlan {
  std::vector<Bucket> buckets;
  std::vector<Slot> slots;  // by parameter index; bucket -1 for a parameter that is not trained
  int64_t numel = 0;        // of the flat buffer
};

/// A bucket closes before a parameter that would take it over its limit; a parameter larger than
/// the limit travels alone, and so does one whose gradient waits for another stage of a pipeline.
/// All parameters of a bucket are of one chunk. `first_bucket_bytes` is capped at `bucket_bytes`.
BucketPlan plan_buckets(const ParamTable& table, int64_t first_bucket_bytes, int64_t bucket_bytes,
                        int64_t bytes_per_element = 4);

}  // namespace lockstep::plan
