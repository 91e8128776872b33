// Messages between two ranks: a ring of parcels for each ordered pair.
//
// A short message is copied into the heap and the sender goes on, on every engine: two ranks may
// send to each other first and receive afterwards. A long one is read in place, and the sender
// waits for that, if the peer can reach the memory; else it is copied in pieces as the ring has
// room. To a rank of another host every message is copied, and the sender goes on.
#include <algorithm>
#include <cstring>

#include "lockstep/base/str.h"
#include "lockstep/net/group_core.h"
#include "lockstep/net/remote_ranks.h"

namespace lockstep::net {
namespace {

constexpr int64_t kParcelBytes = 2 * MiB;
constexpr int64_t kShortMessageBytes = 256 * KiB;

std::string message_text(int64_t count, DType type, int tag) {
  return base::str(count, " ", name_of(type), " with tag ", tag);
}

void check_peer(const Group::Impl& group, const char* what, int peer, int64_t count) {
  if (peer < 0 || peer >= group.size() || peer == group.rank) {
    throw UsageError(base::str(what, ": rank ", group.rank, " of \"", group.name, "\" (",
                               group.size(), " ranks) cannot exchange with rank ", peer));
  }
  if (count < 0) throw UsageError(base::str(what, ": a count of ", count, " elements"));
}

}  // namespace

void Group::Impl::send(const void* data, int64_t count, DType type, int to, int tag) {
  check_peer(*this, "send", to, count);
  throw_if_finished();
  Call call(*this, Operation::send);
  current =
      base::str("send of ", message_text(count, type, tag), " to rank ", to, " on \"", name, "\"");
  waiting = false;
  record(Operation::send, count, type, ReduceOp::sum, ++messages);
  if (is_remote(to)) {
    const auto bytes = static_cast<size_t>(count * width_of(type));
    remote->send(seats[rank], members[to], type, count, tag,
                 {static_cast<const char*>(data), bytes});
    current.clear();
    return;
  }
  Channel& ours = channel(rank, to, Lane::messages);
  Signal& taken_there = channel(to, rank, Lane::messages).taken;
  Outbox& outbox = outboxes[to];
  const int64_t width = width_of(type);
  const int64_t address = address_of(data, count * width);
  const bool in_place = address != kNotReachable && count * width > kShortMessageBytes;
  const int64_t most = in_place ? count : kParcelBytes / width;
  int64_t first = 0;
  do {
    const int64_t n = std::min(most, count - first);
    wait_for(to, taken_there, outbox.posted + 1 - kParcels);  // room in the ring
    pass(Point::send);
    const uint32_t slot = outbox.posted % kParcels;
    Parcel& parcel = ours.parcels[slot];
    parcel = {count, first, n, address, tag, type, in_place};
    outbox.copies[slot].reset();
    if (!in_place && n > 0) {
      outbox.copies[slot] = endpoint.impl().heap->allocate(n * width);
      std::memcpy(outbox.copies[slot].get(), static_cast<const char*>(data) + first * width,
                  static_cast<size_t>(n * width));
      parcel.address = address_of(outbox.copies[slot].get(), n * width);
    }
    ours.posted.raise(++outbox.posted);
    first += n;
  } while (first < count);
  if (in_place) wait_for(to, taken_there, outbox.posted);
  current.clear();
}

void Group::Impl::receive(void* data, int64_t count, DType type, int from, int tag) {
  check_peer(*this, "recv", from, count);
  throw_if_finished();
  Call call(*this, Operation::recv);
  current = base::str("recv of ", message_text(count, type, tag), " from rank ", from, " on \"",
                      name, "\"");
  waiting = false;
  record(Operation::recv, count, type, ReduceOp::sum, ++messages);
  if (is_remote(from)) {
    receive_across(data, count, type, from, tag, call.entry());
    current.clear();
    return;
  }
  Channel& theirs = channel(from, rank, Lane::messages);
  Signal& taken_here = channel(rank, from, Lane::messages).taken;
  const int64_t width = width_of(type);
  int64_t done = 0;
  do {
    wait_for(from, theirs.posted, taken[from] + 1);
    pass(Point::recv);
    const Parcel& parcel = theirs.parcels[taken[from] % kParcels];
    if (parcel.total != count || parcel.type != type || parcel.tag != tag) {
      fail(base::str("rank ", from, " sent ", message_text(parcel.total, parcel.type, parcel.tag),
                     "."));
    }
    if (parcel.lent) {
      say_moving();
      // A sender that has given up no longer lends its memory.
      if (lines[from]->broken.load(std::memory_order_seq_cst) != 0) throw_if_broken(~uint64_t{0});
    }
    if (parcel.count > 0) {
      std::memcpy(static_cast<char*>(data) + parcel.first * width, at(parcel.address),
                  static_cast<size_t>(parcel.count * width));
    }
    call.entry().bytes += parcel.count * width;
    done += parcel.count;
    say_moved();
    taken_here.raise(++taken[from]);
  } while (done < count);
  current.clear();
}

void Group::Impl::receive_across(void* data, int64_t count, DType type, int from, int tag,
                                 LedgerEntry& entry) {
  wait_for_word(from, remote->messages_of(members[from], seats[from]), taken[from] + 1);
  ++taken[from];
  const RemoteRanks::UserMessage come = remote->take_message(members[from], seats[from]);
  if (come.count != count || come.type != type || come.tag != tag) {
    fail(base::str("rank ", from, " sent ", message_text(come.count, come.type, come.tag), "."));
  }
  if (!come.data.empty()) std::memcpy(data, come.data.data(), come.data.size());
  entry.bytes += std::ssize(come.data);
  entry.across += std::ssize(come.data);
}

}  // namespace lockstep::net
