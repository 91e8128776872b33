#include "lockstep/net/group_core.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <numeric>
#include <thread>

#include "lockstep/base/assert.h"
#include "lockstep/base/str.h"
#include "lockstep/net/guard.h"
#include "lockstep/net/plan_runner.h"
#include "lockstep/net/remote_ranks.h"
#include "lockstep/net/ticks.h"
#include "lockstep/net/transport.h"
#include "lockstep/net/watchdog.h"

namespace lockstep::net {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLookInterval{100};  // between looks at peers' processes
constexpr std::chrono::microseconds kNapForWord{20};     // of another host
constexpr int kSpinsPerLook = 20;                        // a look at the network is no spin

std::string seconds_text(std::chrono::milliseconds time) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f s", static_cast<double>(time.count()) / 1000);
  return text.data();
}

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

std::string Group::Impl::here() const {
  const std::string who = base::str("[rank ", rank, " of ", size(), "] ");
  if (!current.empty()) return base::str(who, current, ": ");
  const Descriptor& mine = lines[rank]->slots[sequence & 1];
  return base::str(who, name_of(mine.operation), " on \"", name, "\" #", collectives, ": ");
}

bool Group::Impl::is_remote(int peer) const {
  return spans_hosts && !remote->is_here(members[static_cast<size_t>(peer)]);
}

bool Group::Impl::is_aborted() const {
  if (region.header().aborted.load(std::memory_order_seq_cst) == 0) return false;
  if (remote != nullptr) remote->pass_on_abort(somebody_here_died());
  return true;
}

bool Group::Impl::somebody_here_died() const {
  for (int p = 0; p < size() && !direct_memory; ++p) {
    if (!process_is_gone(*endpoint.impl().region, members[p])) continue;
    const RankStatus status = endpoint.region().status(members[p]);
    if (!status.finished && status.error.empty()) return true;
  }
  return false;
}

void Group::Impl::mark_broken(const std::string& message, bool died) {
  lines[rank]->broken_message.set(message);
  const uint64_t number = current.empty() ? collectives : collectives + 1;
  lines[rank]->broken.store(number, std::memory_order_seq_cst);
  if (spans_hosts) remote->tell_broken(seats[rank], members, number, died, message);
}

void Group::Impl::fail(const std::string& what, bool died) {
  finished = here() + what;
  mark_broken(finished, died);
  if (died) throw RankDied(finished);
  throw CommError(finished);
}

void Group::Impl::throw_if_finished() {
  if (!checks.watchdog) return;
  if (finished.empty() && is_aborted()) {
    finished = base::str("[rank ", rank, " of ", size(), "] call on \"", name,
                         "\": the job was aborted: ", region.header().abort_message.get());
  }
  if (!finished.empty()) throw_finished();
}

void Group::Impl::throw_finished() {
  if (somebody_here_died() || (remote != nullptr && remote->somebody_died())) {
    throw RankDied(finished);
  }
  throw CommError(finished);
}

void Group::Impl::throw_if_broken(uint64_t up_to) {
  if (!checks.watchdog) return;
  for (int p = 0; p < size(); ++p) {
    const uint64_t number = lines[p]->broken.load(std::memory_order_seq_cst);
    if (p == rank || number == 0 || number > up_to) continue;
    finished = here() + "the group is finished. " + lines[p]->broken_message.get();
    throw_finished();
  }
}

void Group::Impl::wait_for(int peer, Signal& signal, uint32_t target) {
  if (signal.reached(target)) return;
  if (is_remote(peer)) return wait_for_word(peer, signal, target);
  wait_until(signal, target, patience, [&] {
    if (checks.watchdog) check(wait_on(peer, signal, target));
  });
  if (waiting) say_waited();
}

void Group::Impl::wait_for_word(int peer, const Signal& signal, uint32_t target) {
  // Not yielding in between: where other programs compute on this core, a yield is a tick of the
  // scheduler, far longer than a word takes.
  for (int looks = 0;; ++looks) {
    remote->take_in();
    if (signal.reached(target)) break;
    if (looks < patience.spins / kSpinsPerLook) continue;
    if (checks.watchdog) check(wait_on(peer, signal, target));
    std::this_thread::sleep_for(kNapForWord);
  }
  if (waiting) say_waited();
}

void Group::Impl::wait_for(Transport& transport) {
  const auto is_complete = [&] {
    try {
      return transport.progress();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {  // of an engine's own library
      fail(error.what());
    }
  };
  for (int i = 0; i <= patience.spins; ++i) {
    if (is_complete()) return;
    cpu_pause();
  }
  for (int i = 0; i < patience.yields && !spans_hosts; ++i) {
    sched_yield();
    if (is_complete()) return;
  }
  const auto has_come = [&](int peer) { return !transport.awaits(peer); };
  int64_t completions = -1;
  while (!is_complete()) {
    if (transport.completions() != completions) {  // as long as data move nobody is missing
      completions = transport.completions();
      deadline = Clock::now() + timeout;
    }
    int missing = 0;
    while (missing + 1 < size() && has_come(missing)) ++missing;
    if (checks.watchdog) check({missing, "done their part", has_come});
    transport.nap();
  }
  if (waiting) say_waited();
}

Group::Impl::Wait Group::Impl::wait_on(int peer, const Signal& signal, uint32_t target) const {
  if (!current.empty()) {
    return {peer, "", [&signal, target](int) { return signal.reached(target); }};
  }
  if (&signal == &lines[peer]->steps) {
    return {peer, "done their part",
            [this, target](int p) { return lines[p]->steps.reached(target); }};
  }
  return {peer, "arrived",
          [this, target](int p) { return lines[p]->slots[sequence & 1].arrived.reached(target); }};
}

void Group::Impl::check(const Wait& wait) {
  const auto now = Clock::now();
  if (!waiting) {
    waiting = true;
    waited_for = wait.peer;
    lines[rank]->waiting_since.store(steady_nanoseconds(), std::memory_order_release);
    deadline = now + timeout;
    next_look = now + kLookInterval;
  }
  if (wait.has_come(waited_for)) waited_for = wait.peer;
  lines[rank]->waiting_for.store(members[waited_for], std::memory_order_relaxed);
  if (remote != nullptr) remote->take_in();
  if (is_aborted()) {
    finished = here() + "the job was aborted: " + region.header().abort_message.get();
    throw_finished();
  }
  if (wait.has_come(wait.peer)) return;  // what it came with is compared next
  throw_if_broken(~uint64_t{0});
  if (now >= next_look) {
    next_look = now + kLookInterval;
    look_at_processes(wait);
    // Who waits for others is not to blame: where several are missing, one that does not.
    for (const int p : missing_in(wait)) {
      if (region.waits_for(members[waited_for]) >= 0) waited_for = p;
    }
  }
  if (now >= deadline) time_out(wait);
}

void Group::Impl::look_at_processes(const Wait& wait) {
  const auto has_finished = [&](int p) {
    return region.control(members[p]).finished.load(std::memory_order_acquire) != 0;
  };
  // Who has left may have said why after the caller looked: its words, read when it is known to be
  // gone, come before its absence.
  if (has_finished(wait.peer) && !wait.has_come(wait.peer)) {
    throw_if_broken(~uint64_t{0});
    fail(
        base::str("rank ", wait.peer, " has left the job in good order without making this call."));
  }
  for (int p = 0; p < size() && !direct_memory; ++p) {
    if (!process_is_gone(*endpoint.impl().region, members[p]) || has_finished(p)) continue;
    if (wait.has_come(wait.peer)) continue;
    throw_if_broken(~uint64_t{0});
    const RankStatus status = endpoint.region().status(members[p]);
    if (!status.error.empty()) fail(base::str("rank ", p, " failed: ", status.error), true);
    fail(base::str("rank ", p, " is gone (process ", status.pid, ").\n  ",
                   last_seen(endpoint.region(), remote, members, p)),
         true);
  }
}

std::vector<int> Group::Impl::missing_in(const Wait& wait) const {
  std::vector<int> missing;
  for (int p = 0; p < size(); ++p) {
    const bool counts = current.empty() ? p != rank : p == wait.peer;
    if (counts && !wait.has_come(p)) missing.push_back(p);
  }
  return missing;
}

void Group::Impl::time_out(const Wait& wait) {
  const std::vector<int> missing = missing_in(wait);
  if (missing.empty()) return;  // it came this very moment
  const bool in_collective = current.empty();
  std::vector<int> there;
  for (int p = 0; p < size(); ++p) {
    if (in_collective && p != rank && wait.has_come(p)) there.push_back(p);
  }
  const Blame blame = blame_for(endpoint.region(), remote, members, rank, missing);
  std::string text = base::str("no word from ", blame.text, " for ", seconds_text(timeout));
  if (!blame.stuck.empty()) {
    text += base::str(" (", ranks_text(blame.stuck), blame.stuck.size() == 1 ? " waits" : " wait",
                      " for it too)");
  }
  if (!there.empty()) {
    text +=
        base::str("; ", ranks_text(there), there.size() == 1 ? " has " : " have ", wait.their_word);
  }
  text += ".";
  if (in_collective) {
    text += base::str("\n  The call is ", describe(lines[rank]->slots[sequence & 1]), ".");
  }
  text += blame.last_seen;
  const auto longer = std::max<int64_t>(1, 2 * timeout.count() / 1000);
  fail(base::str(text, "\n  Longer wait: lockstep train --set comm.timeout_s=", longer,
                 ", lockstep run --timeout-s ", longer));
}

}  // namespace lockstep::net
