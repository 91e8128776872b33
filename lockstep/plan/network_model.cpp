#include "lockstep/plan/network_model.h"

#include <algorithm>

#include "lockstep/base/hash.h"

namespace lockstep::plan {
namespace {

/// In [0, 1), the same for the same message on every machine.
double drawn(uint64_t seed, int from, int to, int64_t number) {
  uint64_t bits =
      base::mix64(seed ^ (static_cast<uint64_t>(from) << 32 | static_cast<uint32_t>(to)));
  bits = base::mix64(bits ^ static_cast<uint64_t>(number));
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace

double NetworkModel::latency_s(int from, int to) const {
  return link_between(placement, from, to).latency_s;
}

double NetworkModel::transfer_s(int from, int to, int64_t bytes, int64_t number) const {
  double seconds = static_cast<double>(bytes) / link_between(placement, from, to).bytes_per_second;
  if (from == slow_rank || to == slow_rank) seconds *= slow_factor;
  if (jitter > 0) seconds *= 1 + jitter * drawn(seed, from, to, number);
  return seconds;
}

RankClock::RankClock(const NetworkModel& network, int rank, int ranks)
    : network_(network),
      rank_(rank),
      sent_(static_cast<size_t>(ranks)),
      received_(static_cast<size_t>(ranks)) {}

void RankClock::restart() { now_ = out_free_ = in_free_ = 0; }

double RankClock::send(int to, int64_t bytes) {
  const double transfer = network_.transfer_s(rank_, to, bytes, sent_[static_cast<size_t>(to)]++);
  out_free_ = std::max(now_, out_free_) + transfer;
  return out_free_ + network_.latency_s(rank_, to);
}

void RankClock::expect(int from, int64_t bytes, double arrival) {
  const int64_t number = received_[static_cast<size_t>(from)]++;
  arrivals_.push_back({arrival, from, network_.transfer_s(from, rank_, bytes, number)});
}

void RankClock::complete() {
  // In the order in which they come, whatever the order in which they were asked for.
  std::sort(arrivals_.begin(), arrivals_.end(), [](const Arrival& a, const Arrival& b) {
    return a.time != b.time ? a.time < b.time : a.from < b.from;
  });
  for (const Arrival& arrival : arrivals_) {
    in_free_ = std::max(arrival.time, in_free_ + arrival.transfer_s);
  }
  arrivals_.clear();
  now_ = std::max({now_, out_free_, in_free_});
}

}  // namespace lockstep::plan
