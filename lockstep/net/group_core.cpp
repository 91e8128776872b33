#include "lockstep/net/group_core.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <numeric>

#include "lockstep/base/assert.h"
#include "lockstep/base/str.h"
#include "lockstep/net/guard.h"
#include "lockstep/net/plan_runner.h"
#include "lockstep/net/remote_ranks.h"
#include "lockstep/net/ticks.h"

namespace lockstep::net {
namespace {

/// Whether not all members are on this rank's host.
bool leaves_host(const RemoteRanks* remote, const std::vector<Seats::Member>& members) {
  const auto is_elsewhere = [&](const Seats::Member& m) { return !remote->is_here(m.rank); };
  return remote != nullptr && std::any_of(members.begin(), members.end(), is_elsewhere);
}

}  // namespace

Group::Impl::Impl(Endpoint& endpoint, std::shared_ptr<Endpoint> keeps_endpoint, std::string name,
                  const std::vector<Seats::Member>& everyone)
    : endpoint(endpoint),
      keeps_endpoint(std::move(keeps_endpoint)),
      region(endpoint.impl().region->impl()),
      control(region.control(endpoint.rank())),
      direct_memory(endpoint.impl().direct_memory),
      remote(endpoint.impl().remote.get()),
      spans_hosts(leaves_host(remote, everyone)),
      engine(remote == nullptr || spans_hosts ? endpoint.impl().options.engine.get() : nullptr),
      network(endpoint.impl().options.network.get()),
      name(std::move(name)),
      at_point(endpoint.impl().options.at_point ? &endpoint.impl().options.at_point : nullptr),
      checks(endpoint.impl().options.checks),
      timeout(endpoint.impl().options.timeout) {
  if (endpoint.impl().options.oversubscribed) patience = Patience::oversubscribed();
  seconds_per_tick();  // starts its clock
  for (const Seats::Member& member : everyone) {
    members.push_back(member.rank);
    seats.push_back(member.seat);
    const bool is_here = remote == nullptr || remote->is_here(member.rank);
    lines.push_back(is_here ? &region.lines(member.rank, member.seat.lines)
                            : &remote->lines(member.rank, member.seat));
  }
  for (int r = 0; r < size(); ++r) {
    if (members[r] == endpoint.rank()) rank = r;
    by_rank.terms_by_rank.push_back({{r, r + 1}});
    by_rank.sources.push_back({r, 0});
  }
  by_rank.leaves = size();
  by_rank.additions = plan::plan_sum(size(), by_rank.terms_by_rank).additions;
  outboxes.resize(static_cast<size_t>(size()));
  taken.resize(static_cast<size_t>(size()));
  lines[rank]->name.set(this->name);
  take_table(endpoint.impl().options.algorithms);
}

Group::Impl::~Impl() {
  for (int r = 0; r < size(); ++r) {
    if (is_remote(r)) remote->forget(members[r], seats[r]);
  }
}

Group::Impl::Call::Call(Impl& group, Operation operation)
    : group_(group),
      entry_(group.ledger[operation]),
      ticks_(group.ticks[static_cast<size_t>(operation)]),
      start_(group.checks.ledger ? ticks_now() : 0),
      exceptions_(std::uncaught_exceptions()) {
  if (group.checks.ledger) ++entry_.calls;
}

Group::Impl::Call::~Call() {
  if (group_.checks.ledger) ticks_ += std::max<int64_t>(0, ticks_now() - start_);
  const bool failed = std::uncaught_exceptions() != exceptions_;
  if (group_.waiting) {
    std::atomic<int64_t>& since = group_.lines[group_.rank]->waiting_since;
    since.store(failed ? -since.load(std::memory_order_relaxed) : 0, std::memory_order_relaxed);
  }
  group_.say_moved();
  if (!failed) return;
  if (group_.finished.empty()) {
    group_.finished =
        group_.here() + "this rank left the call with an error of its own; the group is finished.";
    group_.mark_broken(group_.finished);
  }
  group_.wait_for_moving_peers();
}

const Ledger& Group::Impl::read_ledger() {
  const double scale = seconds_per_tick();
  for (size_t op = 0; op < ticks.size(); ++op) {
    ledger.entries[op].seconds = static_cast<double>(ticks[op]) * scale;
  }
  return ledger;
}

char* Group::Impl::Scratch::at_least(const Impl& group, int64_t wanted) {
  if (bytes < wanted) {
    memory.reset();
    bytes = 0;
    memory = group.endpoint.impl().heap->allocate(wanted);
    bytes = wanted;
  }
  return static_cast<char*>(memory.get());
}

void Group::Impl::record(Operation operation, int64_t count, DType type, ReduceOp reduce_op,
                         uint64_t number) {
  if (!checks.ledger) return;
  // Not an atomic increment: threads of one rank in two groups may lose an entry to each other, and
  // the record is for a person who looks for the last thing a rank did.
  const uint64_t n = control.operations.load(std::memory_order_relaxed);
  OperationRecord& entry = control.recent[n % kRecentOperations];
  entry.what.store(number << 24 | uint64_t{static_cast<uint8_t>(operation)} << 16 |
                       uint64_t{static_cast<uint8_t>(type)} << 8 | static_cast<uint8_t>(reduce_op),
                   std::memory_order_relaxed);
  entry.count.store(count, std::memory_order_relaxed);
  entry.seat.store(uint64_t{seats[rank].use} << 32 | static_cast<uint32_t>(seats[rank].lines),
                   std::memory_order_relaxed);
  control.operations.store(n + 1, std::memory_order_release);
}

Descriptor& Group::Impl::prepare(const What& what) {
  throw_if_finished();
  current.clear();
  if (others_are_to_meet) {
    others_are_to_meet = false;
    waiting = false;
    meet_peers();
  }
  ++sequence;
  ++collectives;
  Descriptor& mine = lines[rank]->slots[sequence & 1];
  mine.operation = what.operation;
  pass(Point::call);
  mine.type = what.type;
  mine.reduce_op = what.reduce_op;
  mine.inlined = kInPayload;
  mine.root = static_cast<int16_t>(what.root);
  mine.algorithm = what.algorithm;
  mine.count = what.count;
  mine.counts_hash = what.counts_hash;
  mine.in = kNotReachable;
  mine.out = kNotReachable;
  mine.items = 0;
  mine.leaves = what.leaves;
  record(what.operation, what.count, what.type, what.reduce_op, collectives);
  waiting = false;
  return mine;
}

plan::Algorithm Group::Impl::algorithm_for(plan::Collective operation, int64_t bytes) const {
  if (size() == 1) return plan::Algorithm::direct;
  return algorithms.choose(operation, bytes);
}

void Group::Impl::take_table(plan::AlgorithmTable given) {
  given_algorithms = std::move(given);
  algorithms = given_algorithms;
  if (spans_hosts) algorithms = plan::over_hosts(algorithms, hosts(), remote->hosts());
}

std::vector<std::vector<int>> Group::Impl::hosts() const {
  const bool by_table = !algorithms.hosts.empty() || remote == nullptr;
  std::vector<std::vector<int>> hosts;
  for (const std::vector<int>& of_job : by_table ? algorithms.hosts : remote->hosts()) {
    std::vector<int> here;
    for (int r = 0; r < size(); ++r) {
      if (std::count(of_job.begin(), of_job.end(), members[r]) > 0) here.push_back(r);
    }
    if (!here.empty()) hosts.push_back(std::move(here));
  }
  if (!hosts.empty()) return hosts;
  std::vector<int> all(static_cast<size_t>(size()));
  std::iota(all.begin(), all.end(), 0);
  return {all};
}

void Group::Impl::offer(Descriptor& mine, const void* data, int64_t bytes) {
  if (bytes <= plan::kInlineBytes) {
    const bool few = bytes <= kFewBytes && mine.items == 0;
    mine.inlined = few ? kInFew : kInPayload;
    char* room = few ? mine.few.data() : mine.payload.data();
    if (bytes > 0) std::memcpy(room, data, static_cast<size_t>(bytes));
    return;
  }
  mine.inlined = 0;
  mine.in = address_of(data, bytes);
  if (mine.in == kNotReachable && bytes <= kBounceBytes) {
    char* copy = bounce(bytes);
    std::memcpy(copy, data, static_cast<size_t>(bytes));
    mine.in = address_of(copy, bytes);
  }
}

void* Group::Impl::list_room(Descriptor& mine, int64_t bytes) {
  void* room = mine.list_room.data();
  if (bytes > static_cast<int64_t>(mine.list_room.size())) {
    room = lists[sequence & 1].at_least(*this, bytes);
  }
  mine.list = address_of(room, bytes);
  return room;
}

void Group::Impl::meet(const Descriptor& mine, std::string_view text) {
  pass(Point::announce);
  lines[rank]->slots[sequence & 1].arrived.raise(sequence);
  if (spans_hosts) {
    const char* const list = mine.items > 0 ? at(mine.list) : nullptr;
    remote->tell_call(seats[rank], members, mine, list, sequence, text);
  }
  pass(Point::announced);
  meet_peers();
  pass(Point::met);
}

void Group::Impl::meet_root(const Descriptor& mine) {
  pass(Point::announce);
  lines[rank]->slots[sequence & 1].arrived.raise(sequence);
  pass(Point::announced);
  if (rank != mine.root) meet_peer(mine.root);
  others_are_to_meet = true;
  pass(Point::met);
}

void Group::Impl::meet_peer(int peer) {
  const Descriptor& mine = lines[rank]->slots[sequence & 1];
  Descriptor& theirs = lines[peer]->slots[sequence & 1];
  wait_for(peer, theirs.arrived, sequence);
  if (checks.guard && !same_call(theirs, mine)) fail(mismatch_text(peer, theirs, mine));
}

void Group::Impl::meet_peers() {
  for (int i = 1; i < size(); ++i) meet_peer((rank + i) % size());
}

const char* Group::Impl::offered_by(int peer) const {
  const Descriptor& theirs = came_with(peer);
  if (theirs.inlined) return theirs.inline_data();
  return theirs.in == kNotReachable ? nullptr : at(theirs.in);
}

bool Group::Impl::everyone_inlined() const {
  for (int peer = 0; peer < size(); ++peer) {
    if (!came_with(peer).inlined) return false;
  }
  return true;
}

bool Group::Impl::everyone_reachable() const {
  for (int peer = 0; peer < size(); ++peer) {
    if (!came_with(peer).inlined && came_with(peer).in == kNotReachable) return false;
  }
  return true;
}

void Group::Impl::say_moving() {
  if (!direct_memory) return;
  // Sequentially consistent, as in wait_for_moving_peers: either this rank sees that the job was
  // aborted or the group broken, or the peer that saw it first sees this rank moving.
  lines[rank]->moving.store(1, std::memory_order_seq_cst);
  if (!is_aborted()) return;
  finished = here() + "the job was aborted: " + region.header().abort_message.get();
  throw_finished();
}

void Group::Impl::wait_for_moving_peers() {
  for (int p = 0; p < size() && direct_memory; ++p) {
    while (lines[p]->moving.load(std::memory_order_seq_cst) != 0) sched_yield();
  }
}

void Group::Impl::say_done() {
  say_moved();
  lines[rank]->steps.raise(++steps);
}

void Group::Impl::step() {
  pass(Point::step);
  say_done();
  for (int i = 1; i < size(); ++i) {
    const int peer = (rank + i) % size();
    if (is_remote(peer)) continue;  // it uses no memory of this host
    wait_for(peer, lines[peer]->steps, steps);
  }
  pass(Point::stepped);
}

int64_t Group::Impl::address_of(const void* data, int64_t bytes) const {
  if (direct_memory) return static_cast<int64_t>(reinterpret_cast<uintptr_t>(data));
  if (!region.contains(data, bytes)) return kNotReachable;
  return static_cast<const char*>(data) - region.base;
}

char* Group::Impl::at(int64_t address) const {
  if (direct_memory) return reinterpret_cast<char*>(static_cast<uintptr_t>(address));
  return region.base + address;
}

}  // namespace lockstep::net
