#include "lockstep/state/arrivals.h"

#include <algorithm>

#include "lockstep/base/assert.h"

namespace lockstep::state {

Arrivals::Arrivals(std::vector<int> bucket_of_use, int buckets, Promise promise)
    : bucket_of_use_(std::move(bucket_of_use)),
      promise_(promise),
      expected_(bucket_of_use_.size(), 1),
      came_(bucket_of_use_.size()),
      missing_(static_cast<size_t>(buckets)),
      complete_(static_cast<size_t>(buckets)),
      learning_(promise == Promise::learned) {}

void Arrivals::begin() {
  std::fill(came_.begin(), came_.end(), 0);
  std::fill(complete_.begin(), complete_.end(), false);
  std::fill(missing_.begin(), missing_.end(), 0);
  // A use that brought nothing last time owes nothing: its bucket does not wait for the end.
  for (size_t use = 0; use < expected_.size(); ++use) {
    if (expected_[use] > 0) ++missing_[static_cast<size_t>(bucket_of_use_[use])];
  }
}

int Arrivals::arrived(int use) {
  const auto u = static_cast<size_t>(use);
  const int bucket = bucket_of_use_[u];
  const auto b = static_cast<size_t>(bucket);
  ++came_[u];
  LOCKSTEP_ASSERT(promise_ != Promise::once || came_[u] == 1,
                  "one gradient a parameter use and backward");
  if (learning_ || complete_[b] || came_[u] != expected_[u]) return -1;
  if (--missing_[b] > 0) return -1;
  complete_[b] = true;
  return bucket;
}

std::vector<int> Arrivals::end() {
  std::vector<int> rest;
  for (size_t bucket = 0; bucket < complete_.size(); ++bucket) {
    if (!complete_[bucket]) rest.push_back(static_cast<int>(bucket));
    complete_[bucket] = true;
  }
  if (promise_ != Promise::once) {
    expected_ = came_;
    learning_ = false;
  }
  return rest;
}

}  // namespace lockstep::state
