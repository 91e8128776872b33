// Waiting for peers, and what ends a wait: a word, an abort, a death, the timeout.
#include <algorithm>
#include <array>
#include <cstdio>
#include <thread>

#include "lockstep/base/str.h"
#include "lockstep/net/group_core.h"
#include "lockstep/net/guard.h"
#include "lockstep/net/remote_ranks.h"
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

}  // namespace

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
