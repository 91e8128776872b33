/// Which gradients of a bucket are still owed while a backward runs.
///
/// A parameter's accumulator fires once a backward, in which case `once` knows from the start when
/// a bucket is complete. Under activation recompute, or any function that runs a backward of its
/// own, it fires once for each inner backward. `learned` takes the count of the backward before as
/// what to expect: the first backward completes its buckets only at its end, later ones as soon as
/// as many gradients have come as last time. `guessed` is the same with a first backward that
/// expects one gradient of each. One that comes after its bucket was complete is late.
#pragma once

#include <vector>

namespace lockstep::state {

class Arrivals {
 public:
  enum class Promise { once, learned, guessed };

  Arrivals(std::vector<int> bucket_of_use, int buckets, Promise promise);

  /// A backward begins that completes buckets.
  void begin();

  /// Its gradient of `use` has come: the bucket that this completes, -1 if it completes none.
  int arrived(int use);

  /// The use's bucket was complete before: what comes now is late.
  bool complete(int use) const {
    return complete_[static_cast<size_t>(bucket_of_use_[static_cast<size_t>(use)])];
  }

  /// The backward is over. The buckets that no arrival completed, in rising order.
  std::vector<int> end();

 private:
  std::vector<int> bucket_of_use_;
  Promise promise_;
  std::vector<int> expected_;  // by use; 0: not known yet, or none came last time
  std::vector<int> came_;      // by use, in the backward at hand
  std::vector<int> missing_;   // by bucket: uses that owe; kUnknown until a backward was seen
  std::vector<bool> complete_;
  bool learning_;
};

}  // namespace lockstep::state
