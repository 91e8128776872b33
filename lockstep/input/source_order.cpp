#include "lockstep/input/source_order.h"

#include <algorithm>
#include <numeric>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::input {
namespace {

constexpr int64_t kLongestPeriod = 1 << 20;
constexpr size_t kMostSources = 255;

}  // namespace

SourceOrder::SourceOrder(std::vector<int64_t> weights) : weights_(std::move(weights)) {
  if (weights_.empty() || weights_.size() > kMostSources) {
    throw UsageError(base::str("1 to ", kMostSources, " sources make the training data; ",
                               weights_.size(), " were given."));
  }
  int64_t divisor = 0;
  for (const int64_t weight : weights_) {
    if (weight < 1) throw UsageError("the weight of a data source is above 0.");
    divisor = std::gcd(divisor, weight);
  }
  for (int64_t& weight : weights_) {
    weight /= divisor;
    period_ += std::min(weight, kLongestPeriod + 1);  // a sum that cannot overflow
  }
  if (period_ > kLongestPeriod) {
    throw UsageError(base::str("the weights of the data sources have no common measure of at most ",
                               kLongestPeriod, " parts: write them with fewer digits."));
  }
  sources_.resize(static_cast<size_t>(period_));
  numbers_.resize(static_cast<size_t>(period_));
  std::vector<int64_t> given(weights_.size());
  for (int64_t place = 0; place < period_; ++place) {
    size_t chosen = weights_.size();
    int64_t earliest = 0;
    for (size_t s = 0; s < weights_.size(); ++s) {
      // Sample j of a source (from 0) may come at place floor(j W/w) at the earliest and must have
      // come before place ceil((j + 1) W/w).
      const int64_t last = ((given[s] + 1) * period_ + weights_[s] - 1) / weights_[s];
      if (given[s] * period_ / weights_[s] > place) continue;
      if (chosen == weights_.size() || last < earliest) {
        chosen = s;
        earliest = last;
      }
    }
    LOCKSTEP_ASSERT(chosen < weights_.size(), "some source is due at every place");
    sources_[static_cast<size_t>(place)] = static_cast<uint8_t>(chosen);
    numbers_[static_cast<size_t>(place)] = static_cast<int32_t>(given[chosen]++);
  }
}

SourceOrder::Place SourceOrder::operator()(int64_t sample) const {
  const auto place = static_cast<size_t>(sample % period_);
  const int source = sources_[place];
  return {source, sample / period_ * weights_[static_cast<size_t>(source)] + numbers_[place]};
}

int64_t SourceOrder::count(int source, int64_t samples) const {
  const int64_t whole = samples / period_ * weights_[static_cast<size_t>(source)];
  // The source's last sample before the end of the part says how many there were.
  for (int64_t place = samples % period_; place-- > 0;) {
    const auto at = static_cast<size_t>(place);
    if (sources_[at] == source) return whole + numbers_[at] + 1;
  }
  return whole;
}

}  // namespace lockstep::input
