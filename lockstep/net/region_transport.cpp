#include "lockstep/net/region_transport.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "lockstep/base/str.h"

namespace lockstep::net {
namespace {

constexpr int64_t kPieceBytes = 256 * KiB;
constexpr std::chrono::microseconds kNap{10'000};

}  // namespace

bool RegionTransport::Peer::has_room() const {
  return theirs->taken.reached(posted + 1 - kParcels);
}

bool RegionTransport::Peer::has_parcel() const { return theirs->posted.reached(taken + 1); }

bool RegionTransport::Peer::is_done() const {
  return next_out == out.size() && next_in == in.size() && theirs->taken.reached(posted);
}

RegionTransport::RegionTransport(Group::Impl& group)
    : group_(group), peers_(static_cast<size_t>(group.size())) {
  for (int p = 0; p < group.size(); ++p) {
    peers_[p].ours = &group.channel(group.rank, p, Lane::plans);
    peers_[p].theirs = &group.channel(p, group.rank, Lane::plans);
  }
}

void RegionTransport::make_active(int peer) {
  if (std::find(active_.begin(), active_.end(), peer) == active_.end()) active_.push_back(peer);
}

void RegionTransport::send(int peer, const void* data, int64_t bytes) {
  // Only read: a message in has the same shape, and is written.
  peers_[peer].out.push_back({static_cast<char*>(const_cast<void*>(data)), bytes, 0});
  make_active(peer);
}

void RegionTransport::receive(int peer, void* data, int64_t bytes) {
  peers_[peer].in.push_back({static_cast<char*>(data), bytes, 0});
  make_active(peer);
}

bool RegionTransport::progress() {
  for (const int p : active_) {
    post_parcels(p);
    take_parcels(p);
  }
  for (const int p : active_) {
    if (!peers_[p].is_done()) return false;
  }
  for (const int p : active_) {
    Peer& peer = peers_[p];
    peer.out.clear();
    peer.in.clear();
    peer.next_out = peer.next_in = 0;
  }
  active_.clear();
  return true;
}

void RegionTransport::post_parcels(int index) {
  Peer& peer = peers_[index];
  while (peer.next_out < peer.out.size() && peer.has_room()) {
    Message& message = peer.out[peer.next_out];
    char* data = message.data + message.done;
    const int64_t address = group_.address_of(message.data, message.bytes);
    const bool lent = address != kNotReachable;
    const int64_t bytes =
        lent ? message.bytes : std::min(kPieceBytes, message.bytes - message.done);
    const uint32_t slot = peer.posted % kParcels;
    Parcel& parcel = peer.ours->parcels[slot];
    parcel = {message.bytes, message.done, bytes, address, 0, DType::u8, lent};
    if (!lent) {
      // The slot's last parcel has been taken: its copy may move.
      const auto room = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bytes)));
      char* copy = peer.copies[slot].at_least(group_, room);
      std::memcpy(copy, data, static_cast<size_t>(bytes));
      parcel.address = group_.address_of(copy, bytes);
    }
    peer.ours->posted.raise(++peer.posted);
    ++completions_;
    group_.lines[index]->bell.ring();
    message.done += bytes;
    if (message.done == message.bytes) ++peer.next_out;
  }
}

void RegionTransport::take_parcels(int index) {
  Peer& peer = peers_[index];
  while (peer.next_in < peer.in.size() && peer.has_parcel()) {
    Message& message = peer.in[peer.next_in];
    // Copied: once it is taken the sender may fill the slot with its next but three.
    const Parcel parcel = peer.theirs->parcels[peer.taken % kParcels];
    if (parcel.total != message.bytes) {
      group_.fail(base::str("rank ", index, " sent ", parcel.total, " bytes where the plan has ",
                            message.bytes, ": the ranks carry out different plans."));
    }
    if (parcel.lent) group_.expect_peers_memory();
    std::memcpy(message.data + parcel.first, group_.at(parcel.address),
                static_cast<size_t>(parcel.count));
    group_.say_moved();
    peer.ours->taken.raise(++peer.taken);
    group_.lines[index]->bell.ring();
    group_.pass(Point::taken);
    message.done += parcel.count;
    bytes_received_ += parcel.count;
    ++completions_;
    if (message.done == message.bytes) ++peer.next_in;
  }
}

bool RegionTransport::awaits(int peer) const { return !peers_[peer].is_done(); }

void RegionTransport::nap() {
  const auto can_move = [&](int p) {
    const Peer& peer = peers_[p];
    return (peer.next_out < peer.out.size() && peer.has_room()) ||
           (peer.next_in < peer.in.size() && peer.has_parcel());
  };
  const auto is_done = [&](int p) { return peers_[p].is_done(); };
  const auto ready = [&] {
    return std::any_of(active_.begin(), active_.end(), can_move) ||
           std::all_of(active_.begin(), active_.end(), is_done);
  };
  group_.lines[group_.rank]->bell.sleep(kNap, ready);
}

}  // namespace lockstep::net
