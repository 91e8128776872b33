/// A network that is not there: what messages between the ranks of a placement would take on it.
///
/// Every rank has one way out and one way in, which carry one message after the other; the links
/// between them do not tire. Times are those of a model, and the same on every machine.
///
///   way out of rank 0   |== to 1 ==|== to 2 ==|
///   link 0 to 2                    ...latency...|
///   way into rank 2                             |== from 0 ==|
///
/// Source  LogGP: Alexandrov et al. 1995, SPAA; docs/concepts/virtual_clusters.md
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/plan/topology.h"

namespace lockstep::plan {

struct NetworkModel {
  Placement placement;
  double jitter = 0;  // a message takes up to this part longer
  uint64_t seed = 0;  // of the jitter
  int slow_rank = -1;
  double slow_factor = 1;  // its messages, in and out, take so many times as long

  double latency_s(int from, int to) const;
  /// The time that message number `number` of this pair takes a way out or in.
  double transfer_s(int from, int to, int64_t bytes, int64_t number) const;
};

/// A rank's time on a modelled network. All seconds since its last restart.
class RankClock {
 public:
  RankClock(const NetworkModel& network, int rank, int ranks);

  void restart();
  double now() const { return now_; }

  /// Starts to send `bytes` to `to`. Returns when their last byte would reach its way in.
  double send(int to, int64_t bytes);
  /// A message that this rank waits for: when `send` said that it would come.
  void expect(int from, int64_t bytes, double arrival);
  /// The sends and the messages waited for are complete: it is that late now.
  void complete();

 private:
  struct Arrival {
    double time;
    int from;
    double transfer_s;
  };

  const NetworkModel& network_;
  int rank_;
  double now_ = 0;
  double out_free_ = 0;
  double in_free_ = 0;
  std::vector<Arrival> arrivals_;
  std::vector<int64_t> sent_;      // messages, by rank
  std::vector<int64_t> received_;  // messages, by rank
};

}  // namespace lockstep::plan
