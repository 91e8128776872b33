/// Messages that really go through another transport, and take the time of a network that is not
/// there: numerics are real, the clock is the model's.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "lockstep/net/transport.h"
#include "lockstep/plan/network_model.h"

namespace lockstep::net {

class ModelledTransport final : public Transport {
 public:
  /// `members`: ranks of the network's placement, in group order; `rank`: this one's place there.
  ModelledTransport(std::unique_ptr<Transport> carrier, const plan::NetworkModel& network,
                    std::vector<int> members, int rank);

  void send(int peer, const void* data, int64_t bytes) override;
  void receive(int peer, void* data, int64_t bytes) override;
  bool progress() override;
  int64_t completions() const override { return carrier_->completions(); }
  bool awaits(int peer) const override { return carrier_->awaits(peer); }
  void nap() override { carrier_->nap(); }
  void abandon() override { carrier_->abandon(); }

  void restart_clock() override { clock_.restart(); }
  double clock_s() const override { return clock_.now(); }

 private:
  /// When a message arrives travels before it.
  struct Expected {
    int from;  // of the placement
    int64_t bytes;
    double arrival;
  };

  std::unique_ptr<Transport> carrier_;
  std::vector<int> members_;
  plan::RankClock clock_;
  std::deque<double> departures_;  // a deque: messages under way point into it
  std::deque<Expected> expected_;
};

}  // namespace lockstep::net
