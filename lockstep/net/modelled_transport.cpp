#include "lockstep/net/modelled_transport.h"

namespace lockstep::net {

ModelledTransport::ModelledTransport(std::unique_ptr<Transport> carrier,
                                     const plan::NetworkModel& network, std::vector<int> members,
                                     int rank)
    : carrier_(std::move(carrier)),
      members_(std::move(members)),
      clock_(network, members_[static_cast<size_t>(rank)], network.placement.ranks()) {}

void ModelledTransport::send(int peer, const void* data, int64_t bytes) {
  departures_.push_back(clock_.send(members_[static_cast<size_t>(peer)], bytes));
  carrier_->send(peer, &departures_.back(), sizeof(double));
  carrier_->send(peer, data, bytes);
}

void ModelledTransport::receive(int peer, void* data, int64_t bytes) {
  expected_.push_back({members_[static_cast<size_t>(peer)], bytes, 0});
  carrier_->receive(peer, &expected_.back().arrival, sizeof(double));
  carrier_->receive(peer, data, bytes);
}

bool ModelledTransport::progress() {
  if (!carrier_->progress()) return false;
  for (const Expected& message : expected_) {
    clock_.expect(message.from, message.bytes, message.arrival);
    bytes_received_ += message.bytes;
  }
  expected_.clear();
  departures_.clear();
  clock_.complete();
  return true;
}

}  // namespace lockstep::net
