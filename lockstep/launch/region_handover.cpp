#include "lockstep/launch/region_handover.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <map>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/launch/message_auth.h"
#include "lockstep/launch/region_handover_wire.h"
#include "lockstep/net/watchdog.h"

namespace lockstep::launch {
namespace {

using handover::Clock;
using handover::Closed;
using handover::Hello;
using handover::Peer;
using handover::Reply;
using handover::ReplyKind;
using std::chrono::milliseconds;

constexpr milliseconds kLongestNap{20};
constexpr size_t kMostUnnamed = 64;           // who have not said yet who they are
constexpr milliseconds kNamePatience{5'000};  // with each of them

std::string who_am_i(const HandoverOptions& options) {
  return base::str("[rank ", options.rank, " of ", options.world_size, "] joining under ",
                   options.started_by, ": ");
}

std::string seconds_text(milliseconds time) {
  return base::str(time.count() / 1000, ".", time.count() % 1000 / 100, " s");
}

Hello hello_of(const HandoverOptions& options, const std::string& nonce) {
  Hello hello{.nonce = nonce,
              .rank = options.rank,
              .world_size = options.world_size,
              .local_rank = options.local_rank,
              .local_size = options.local_size,
              .cores = {},
              .key = options.key.substr(0, handover::kMostText)};
  CPU_ZERO(&hello.cores);
  sched_getaffinity(0, sizeof hello.cores, &hello.cores);
  return hello;
}

/// What local rank 0 does: it listens, hears who comes, and answers all at once.
class Host {
 public:
  Host(const HandoverOptions& options, Descriptor listener)
      : options_(options),
        own_(hello_of(options, "")),
        listener_(std::move(listener)),
        deadline_(Clock::now() + options.timeout) {}

  /// Until all are here. Throws what is in the way.
  void gather() {
    while (static_cast<int>(here_.size()) + 1 < options_.local_size) {
      if (!wait()) throw CommError(missing_text());
    }
  }

  /// Whoever comes until the time is over, without a complaint about those who do not.
  void gather_some() {
    while (static_cast<int>(here_.size()) + 1 < options_.local_size && wait()) {
    }
  }

  /// Ranks of the job, this one among them.
  std::vector<int> ranks() const {
    std::vector<int> ranks = {own_.rank};
    for (const auto& [local_rank, arrival] : here_) ranks.push_back(arrival.rank);
    return ranks;
  }

  void answer(const Reply& reply) const {
    for (const auto& [rank, arrival] : here_) handover::send(arrival.connection, reply);
  }

  bool oversubscribed() const {
    cpu_set_t all = own_.cores;
    for (const auto& [rank, arrival] : here_) CPU_OR(&all, &all, &arrival.cores);
    return options_.local_size > CPU_COUNT(&all);
  }

 private:
  struct Unnamed {
    Descriptor connection;
    std::string nonce;  // that its hello must bring
    Clock::time_point deadline;
  };

  struct Arrival {
    Descriptor connection;
    Peer peer;
    int rank = 0;  // of the job
    cpu_set_t cores{};
  };

  /// Takes in what happens next. False: the time is over.
  bool wait() {
    std::vector<pollfd> entries = {{.fd = listener_.get(), .events = POLLIN, .revents = 0}};
    for (const Unnamed& unnamed : unnamed_) {
      entries.push_back({.fd = unnamed.connection.get(), .events = POLLIN, .revents = 0});
    }
    const size_t named = entries.size();
    for (const auto& [rank, arrival] : here_) {
      entries.push_back({.fd = arrival.connection.get(), .events = POLLIN, .revents = 0});
    }
    const auto until =
        unnamed_.empty() ? deadline_ : std::min(deadline_, unnamed_.front().deadline);
    const bool something =
        ::poll(entries.data(), entries.size(), handover::milliseconds_until(until)) > 0;
    if (something) take_in(entries, named);
    while (!unnamed_.empty() && unnamed_.front().deadline <= Clock::now()) unnamed_.pop_front();
    return something || Clock::now() < deadline_;
  }

  void take_in(const std::vector<pollfd>& entries, size_t named) {
    size_t at = named;
    for (const auto& [rank, arrival] : here_) {
      // One who waits says nothing more: this is the end of the connection.
      if (entries[at++].revents != 0) throw left(rank, arrival.peer);
    }
    for (size_t i = named - 1; i >= 1; --i) {
      if (entries[i].revents != 0) hear(i - 1);
    }
    if (entries[0].revents != 0) accept();
  }

  void accept() {
    Descriptor connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (connection.get() < 0) {
      // The queue stays as it is, and asking again at once would spin.
      if (errno != EMFILE && errno != ENFILE) return;
      if (unnamed_.empty()) return std::this_thread::sleep_for(milliseconds(10));
      unnamed_.pop_front();
      return;
    }
    // Another user may know the name; it gets no answer.
    if (handover::peer_of(connection).user != ::geteuid()) return;
    if (unnamed_.size() == kMostUnnamed) unnamed_.pop_front();  // a rank among them comes again
    const std::string nonce = new_nonce();
    if (!handover::send_nonce(connection, nonce)) return;
    unnamed_.push_back({std::move(connection), nonce, Clock::now() + kNamePatience});
  }

  void hear(size_t index) {
    Descriptor connection = std::move(unnamed_[index].connection);
    const std::string nonce = std::move(unnamed_[index].nonce);
    unnamed_.erase(unnamed_.begin() + static_cast<std::ptrdiff_t>(index));
    const Peer peer = handover::peer_of(connection);
    try {
      const Hello hello = handover::receive_hello(connection);
      if (hello.nonce != nonce) return;  // recorded earlier
      const std::string objection = objection_to(hello, peer);
      if (objection.empty()) {
        here_[hello.local_rank] = {std::move(connection), peer, hello.rank, hello.cores};
        return;
      }
      refused_ = objection;
      handover::send(connection, {.kind = ReplyKind::refused, .exit_code = 5, .text = objection});
    } catch (const Closed&) {
      // It went away, or is no rank of this version: the others do not need it.
    }
  }

  std::string objection_to(const Hello& hello, const Peer& peer) const {
    const std::string who = base::str("process ", peer.pid);
    if (hello.key != own_.key) {
      return base::str(who, " is of the job \"", hello.key, "\", not of \"", own_.key, "\".");
    }
    if (hello.world_size != options_.world_size || hello.local_size != options_.local_size) {
      return base::str(who, " was told of ", hello.world_size, " ranks, ", hello.local_size,
                       " of them on this host; local rank 0 of ", options_.world_size, " and ",
                       options_.local_size, ".");
    }
    if (hello.local_rank < 1 || hello.local_rank >= options_.local_size) {
      return base::str(who, " says it is local rank ", hello.local_rank, ", which local rank 0 (",
                       "process ", ::getpid(), ") has no place for.");
    }
    const auto same = here_.find(hello.local_rank);
    if (same != here_.end()) {
      return base::str("local rank ", hello.local_rank, " has come twice: process ",
                       same->second.peer.pid, " and ", who,
                       ".\n  Two jobs at once need two values of MASTER_PORT.");
    }
    return "";
  }

  RankDied left(int local_rank, const Peer& peer) const {
    return RankDied(base::str(who_am_i(options_), "local rank ", local_rank, " (process ", peer.pid,
                              ") went away while the ranks of this host gathered."));
  }

  std::string missing_text() const {
    std::vector<int> come = {0};
    std::vector<int> missing;
    for (int rank = 1; rank < options_.local_size; ++rank) {
      (here_.contains(rank) ? come : missing).push_back(rank);
    }
    const bool one = missing.size() == 1;
    std::string text =
        base::str(who_am_i(options_), "after ", seconds_text(options_.timeout), " local ",
                  net::ranks_text(missing), one ? " has" : " have", " not come; local ",
                  net::ranks_text(come), come.size() == 1 ? " has." : " have.");
    if (!refused_.empty()) text += "\n  Turned away: " + refused_;
    return text + "\n  Does every rank of this host run this program?";
  }

  const HandoverOptions& options_;
  const Hello own_;
  Descriptor listener_;
  const Clock::time_point deadline_;
  std::deque<Unnamed> unnamed_;  // the oldest first
  std::map<int, Arrival> here_;  // by local rank
  std::string refused_;          // why the last one was turned away
};

/// Somebody else listens under our name: which process that is.
EnvironmentError taken(const HandoverOptions& options) {
  std::string who = "another process";
  if (const auto connection = handover::connect_to(options.key)) {
    const Peer peer = handover::peer_of(*connection);
    who = base::str("process ", peer.pid, " of user ", peer.user);
  }
  return EnvironmentError(base::str(
      who_am_i(options), who, " gathers ranks as local rank 0 of this very job (", options.key,
      ").\n  Two jobs at once need two values of MASTER_PORT; a process left over must be ended."));
}

Host start_hosting(const HandoverOptions& options) {
  auto listener = handover::listen_as(options.key);
  if (!listener) throw taken(options);
  return Host(options, std::move(*listener));
}

/// The connection to local rank 0, as soon as that is there.
Descriptor find_host(const HandoverOptions& options) {
  const auto deadline = Clock::now() + options.timeout;
  milliseconds nap{1};
  for (;;) {
    if (auto connection = handover::connect_to(options.key)) return std::move(*connection);
    if (Clock::now() >= deadline) {
      throw CommError(base::str(who_am_i(options), "after ", seconds_text(options.timeout),
                                " local rank 0 has not come; this is local rank ",
                                options.local_rank, " of ", options.local_size,
                                ".\n  Does every rank of this host run this program?"));
    }
    std::this_thread::sleep_for(nap);
    nap = std::min(2 * nap, kLongestNap);
  }
}

/// Its answer to this rank. Throws Closed at the end of the connection.
Reply ask(const HandoverOptions& options, const Descriptor& host, const Peer& peer,
          Clock::time_point deadline) {
  if (handover::wait_readable(host, deadline)) {
    if (!handover::send(host, hello_of(options, handover::receive_nonce(host)))) throw Closed{};
    if (handover::wait_readable(host, deadline)) return handover::receive_reply(host);
  }
  throw CommError(base::str(who_am_i(options), "no word from local rank 0 (process ", peer.pid,
                            ") for ", seconds_text(options.timeout), "."));
}

/// Asks again if local rank 0 is still there after it closed the connection: many at once had come
/// (kMostUnnamed).
Reply ask_until_answered(const HandoverOptions& options, Descriptor host) {
  // Local rank 0 gives up by itself, and says for whom it waited: a second more lets it.
  const auto deadline = Clock::now() + options.timeout + std::chrono::seconds(1);
  for (milliseconds nap{1};; nap = std::min(2 * nap, kLongestNap)) {
    const Peer peer = handover::peer_of(host);
    if (peer.user != ::geteuid()) {
      throw EnvironmentError(base::str(who_am_i(options), "process ", peer.pid, " of user ",
                                       peer.user,
                                       " poses as local rank 0; nothing was sent to it."));
    }
    try {
      return ask(options, host, peer, deadline);
    } catch (const Closed&) {
      std::this_thread::sleep_for(nap);
    }
    auto again = handover::connect_to(options.key);
    if (!again || handover::peer_of(*again).pid != peer.pid || Clock::now() >= deadline) {
      throw RankDied(base::str(who_am_i(options), "local rank 0 (process ", peer.pid,
                               ") went away while the ranks of this host gathered."));
    }
    host = std::move(*again);
  }
}

}  // namespace

Received hand_out(const HandoverOptions& options, const std::shared_ptr<net::Region>& region,
                  const std::string& message) {
  Host host = start_hosting(options);
  try {
    host.gather();
  } catch (const Error& error) {
    host.answer({.kind = ReplyKind::failed, .exit_code = error.exit_code(), .text = error.what()});
    throw;
  }
  if (options.local_size < options.world_size) region->set_ranks_here(host.ranks());
  const Received given{region, message, host.oversubscribed()};
  host.answer({.kind = ReplyKind::region,
               .oversubscribed = given.oversubscribed,
               .text = message,
               .fd = region->fd()});
  return given;
}

void hand_out_failure(const HandoverOptions& options, const std::string& message, int exit_code) {
  try {
    Host host = start_hosting(options);
    try {
      host.gather_some();
    } catch (const Error&) {
      // One who left needs no word; the others do.
    }
    host.answer({.kind = ReplyKind::failed, .exit_code = exit_code, .text = message});
  } catch (const Error&) {
    // Nobody can be told. They notice when their time is over.
  }
}

Received take_over(const HandoverOptions& options) {
  const Reply reply = ask_until_answered(options, find_host(options));
  const Descriptor region(reply.fd);
  if (reply.kind == ReplyKind::refused) {
    throw CommError(base::str(who_am_i(options), "turned away by local rank 0: ", reply.text));
  }
  if (reply.kind == ReplyKind::failed) {
    throw CommError(base::str(who_am_i(options), "local rank 0 gave up: ", reply.text),
                    reply.exit_code);
  }
  return {net::Region::attach(region.get()), reply.text, reply.oversubscribed};
}

}  // namespace lockstep::launch
