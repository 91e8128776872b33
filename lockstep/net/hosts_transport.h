/// Messages of a group that spans hosts: to members of this host through its region, to the others
/// by the engine.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/net/transport.h"

namespace lockstep::net {

class HostsTransport final : public Transport {
 public:
  /// `is_remote`: by member.
  HostsTransport(std::unique_ptr<Transport> inside, std::unique_ptr<Transport> across,
                 std::vector<bool> is_remote);

  void send(int peer, const void* data, int64_t bytes) override;
  void receive(int peer, void* data, int64_t bytes) override;
  bool progress() override;
  bool awaits(int peer) const override;
  void nap() override;
  void abandon() override;

  int64_t bytes_received() const override {
    return inside_->bytes_received() + across_->bytes_received();
  }
  int64_t completions() const override { return inside_->completions() + across_->completions(); }
  int64_t bytes_across() const override { return across_->bytes_received(); }

 private:
  Transport& to(int peer) const {
    return *(is_remote_[static_cast<size_t>(peer)] ? across_ : inside_);
  }

  const std::unique_ptr<Transport> inside_;
  const std::unique_ptr<Transport> across_;
  const std::vector<bool> is_remote_;
  bool inside_is_done_ = true;
  bool across_is_done_ = true;
};

}  // namespace lockstep::net
