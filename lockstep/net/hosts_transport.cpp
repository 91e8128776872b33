#include "lockstep/net/hosts_transport.h"

#include <utility>

namespace lockstep::net {

HostsTransport::HostsTransport(std::unique_ptr<Transport> inside, std::unique_ptr<Transport> across,
                               std::vector<bool> is_remote)
    : inside_(std::move(inside)), across_(std::move(across)), is_remote_(std::move(is_remote)) {}

void HostsTransport::send(int peer, const void* data, int64_t bytes) {
  to(peer).send(peer, data, bytes);
}

void HostsTransport::receive(int peer, void* data, int64_t bytes) {
  to(peer).receive(peer, data, bytes);
}

bool HostsTransport::progress() {
  across_is_done_ = across_->progress();
  inside_is_done_ = inside_->progress();
  return across_is_done_ && inside_is_done_;
}

bool HostsTransport::awaits(int peer) const { return to(peer).awaits(peer); }

void HostsTransport::nap() {
  // The region wakes who sleeps; a network has to be looked at.
  (across_is_done_ ? inside_ : across_)->nap();
}

void HostsTransport::abandon() {
  inside_->abandon();
  across_->abandon();
}

}  // namespace lockstep::net
