/// Which window of the data each sample of each step is: a function of seed and sample number only.
///
/// The data are cut into windows of `context` tokens (+ 1 for the last target). Sample number k of
/// the run (step * global_batch + index in the step) lies in epoch k / windows; within an epoch a
/// keyed permutation visits every window exactly once. No state, no communication: any rank can
/// answer for any sample, and resuming is arithmetic.
#pragma once

#include <cstdint>

namespace lockstep::input {

/// A keyed permutation of [0, size): a Feistel network over the next even power of two, walked
/// until it lands inside (cycle walking, Black and Rogaway 2002).
class Permutation {
 public:
  Permutation(int64_t size, uint64_t key);
  int64_t operator()(int64_t index) const;

 private:
  int64_t size_;
  int half_bits_;
  uint64_t key_;
};

struct Sampler {
  int64_t tokens = 0;  // in the data file
  int64_t context = 0;
  uint64_t seed = 0;
  bool shuffle = true;

  int64_t windows() const { return tokens > 0 ? (tokens - 1) / context : 0; }
  int64_t epoch_of(int64_t sample) const { return sample / windows(); }
  /// First token of the window of sample number `sample` of the run.
  int64_t first_token(int64_t sample) const;
};

/// First tokens of `count` evenly spaced windows: what evaluation reads. Windows repeat only if
/// there are fewer than `count`.
int64_t evaluation_token(int64_t tokens, int64_t context, int64_t count, int64_t index);

}  // namespace lockstep::input
