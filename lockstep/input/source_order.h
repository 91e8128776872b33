/// Which of several weighted sources each sample comes from: a function of the sample's number.
///
/// After any k samples a source of weight w (of W in all) has given more than k w/W - 1 and fewer
/// than k w/W + 1 of them. The order repeats after W samples, where all counts are exact; within,
/// each sample of a source has a first and a last place that keep the bound, and the earliest last
/// place goes first.
///
/// Costs   W of memory in bytes times 5, and W x sources of time, once; then a look-up a sample
/// Source  Baruah, Cohen, Plaxton and Varvel 1996, Algorithmica 15(6) (proportionate progress)
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::input {

class SourceOrder {
 public:
  /// Throws UsageError: no weight, one below 1, or a sum beyond 2^20 without their common divisor.
  explicit SourceOrder(std::vector<int64_t> weights);

  struct Place {
    int source = 0;
    int64_t number = 0;  // of that source's samples came before
  };
  Place operator()(int64_t sample) const;

  /// How many of the first `samples` are of `source`.
  int64_t count(int source, int64_t samples) const;

 private:
  std::vector<int64_t> weights_;
  int64_t period_ = 0;
  std::vector<uint8_t> sources_;  // by place in the period
  std::vector<int32_t> numbers_;  // before it, in the period
};

}  // namespace lockstep::input
