/// Messages of plans through the region: a ring of parcels for each ordered pair of members.
///
/// Memory that the peer can reach is lent and read in place; other memory is copied in pieces, as
/// the ring has room.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "lockstep/net/group_core.h"
#include "lockstep/net/transport.h"

namespace lockstep::net {

class RegionTransport final : public Transport {
 public:
  explicit RegionTransport(Group::Impl& group);

  void send(int peer, const void* data, int64_t bytes) override;
  void receive(int peer, void* data, int64_t bytes) override;
  bool progress() override;
  bool awaits(int peer) const override;
  void nap() override;

 private:
  struct Message {
    char* data;
    int64_t bytes;
    int64_t done;
  };
  struct Peer {
    Channel* ours = nullptr;    // from this rank
    Channel* theirs = nullptr;  // to this rank, and what the peer has taken of ours
    uint32_t posted = 0;        // parcels
    uint32_t taken = 0;
    std::vector<Message> out;
    std::vector<Message> in;
    size_t next_out = 0;  // the first message that is not wholly posted
    size_t next_in = 0;   // the first that is not wholly here
    std::array<Group::Impl::Scratch, kParcels> copies;  // by slot of the ring

    bool has_room() const;
    bool has_parcel() const;
    bool is_done() const;
  };

  void make_active(int peer);
  void post_parcels(int index);
  void take_parcels(int index);

  Group::Impl& group_;
  std::vector<Peer> peers_;
  std::vector<int> active_;  // with messages under way
};

}  // namespace lockstep::net
