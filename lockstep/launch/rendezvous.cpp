#include "lockstep/launch/rendezvous.h"

#include <algorithm>
#include <charconv>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/launch/cores.h"
#include "lockstep/launch/failure_report.h"
#include "lockstep/launch/region_handover.h"
#include "lockstep/launch/rendezvous_leader.h"

namespace lockstep::launch {
namespace {

using rendezvous::Clock;
using rendezvous::Lost;
using rendezvous::Message;
using std::chrono::milliseconds;

constexpr milliseconds kLongestNap{100};

}  // namespace

void parse_rendezvous(const std::string& text, NodeOptions& options) {
  const size_t colon = text.rfind(':');
  const std::string port = colon == std::string::npos ? "" : text.substr(colon + 1);
  std::string host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const auto result = std::from_chars(port.data(), port.data() + port.size(), options.port);
  if (host.empty() || port.empty() || result.ec != std::errc() ||
      result.ptr != port.data() + port.size() || options.port < 1 || options.port > 65535) {
    throw UsageError(
        base::str("--rendezvous ", text, ": must be HOST:PORT of node 0, such as node7:29400"));
  }
  options.host = host;
}

Rendezvous::Rendezvous(const NodeOptions& options) : options_(options) {
  if (options.nodes < 1 || options.node_rank < 0 || options.node_rank >= options.nodes) {
    throw UsageError(base::str("--node-rank ", options.node_rank, ": must be 0 to ",
                               options.nodes - 1, ", below --nnodes"));
  }
  if (options.ranks < 1) {
    throw UsageError(base::str("-n ", options.ranks, ": a node has at least 1 rank"));
  }
  if (options.node_rank == 0) {
    leader_ = std::make_unique<RendezvousLeader>(options);
    leader_->gather();
  } else {
    meet();
  }
}

Rendezvous::~Rendezvous() = default;

/// Any node but 0: until node 0 has heard all of them.
void Rendezvous::meet() {
  const std::string where = base::str("rendezvous at ", options_.host, ":", options_.port, ": ");
  const std::string patience = base::str(static_cast<double>(options_.timeout.count()) / 1e3, " s");
  auto deadline = Clock::now() + options_.timeout;
  milliseconds nap{1};
  std::string lost;
  for (;;) {
    if (auto connection = rendezvous::connect_to(options_.host, options_.port)) {
      connection_ = std::move(*connection);
      break;
    }
    if (Clock::now() >= deadline) {
      throw CommError(base::str(where, "after ", patience, " node 0 does not listen; this is node ",
                                options_.node_rank, " of ", options_.nodes,
                                ".\n  Is it started there, and is the port open between nodes?"));
    }
    std::this_thread::sleep_for(nap);
    nap = std::min(2 * nap, kLongestNap);
  }
  // Node 0 gives up by itself, and says for whom it waited: a second more lets it.
  deadline = Clock::now() + options_.timeout + std::chrono::seconds(1);
  try {
    rendezvous::send(connection_, hello_of(options_));
    if (!rendezvous::wait_readable(connection_, deadline)) {
      throw CommError(base::str(where, "no word from node 0 for ", patience, "."));
    }
    start_ = rendezvous::receive(connection_);
  } catch (const Lost& gone) {
    throw CommError(base::str(where, "node 0: ", gone.why, "."));
  }
  if (start_.value("type", "") == "refused") {
    throw CommError(base::str(where, "node 0 has turned node ", options_.node_rank,
                              " away: ", start_.value("why", "")));
  }
}

Share Rendezvous::share() {
  const auto deadline = Clock::now() + options_.timeout;
  while (start_.is_null()) {
    pump();
    start_ = take("start").value_or(Message());
    if (start_.is_null() && (lost_ || Clock::now() >= deadline)) {
      throw CommError("node 0 does not say how all ranks start again: its launcher is gone.");
    }
  }
  const Message start = std::exchange(start_, Message());
  Share share;
  share.first_rank = start.at("first_rank").get<int>();
  share.world_size = start.at("world_size").get<int>();
  share.node_rank = options_.node_rank;
  share.master_host = options_.host;
  share.master_port = start.at("master_port").get<int>();
  share.job_id = start.at("job_id").get<std::string>();
  if (options_.nodes == 1 || !start.at("one_host").get<bool>()) return share;
  const HandoverOptions handover{
      .key = base::str("nodes of job ", share.job_id, " start ", start.at("restart").get<int>()),
      .rank = options_.node_rank,
      .world_size = options_.nodes,
      .local_rank = options_.node_rank,
      .local_size = options_.nodes,
      .started_by = "lockstep run on several nodes",
      .timeout = options_.timeout};
  const Received received = options_.node_rank == 0
                                ? hand_out(handover, net::Region::create(share.world_size))
                                : take_over(handover);
  share.region = received.region;
  share.oversubscribed = share.world_size > cores_at_full_speed();
  return share;
}

void Rendezvous::send(const Message& message) {
  if (leader_) {
    leader_->hear(0, message);
    return;
  }
  try {
    rendezvous::send(connection_, message);
  } catch (const Lost&) {
    lost_ = true;
  }
}

void Rendezvous::pump() {
  if (leader_) {
    leader_->pump();
    std::deque<Message>& own = leader_->own_inbox();
    std::move(own.begin(), own.end(), std::back_inserter(inbox_));
    own.clear();
    return;
  }
  try {
    while (!lost_ && rendezvous::wait_readable(connection_, Clock::time_point{})) {
      inbox_.push_back(rendezvous::receive(connection_));
    }
  } catch (const Lost&) {
    lost_ = true;
  }
}

std::optional<Message> Rendezvous::take(const std::string& type) {
  const auto found = std::find_if(inbox_.begin(), inbox_.end(), [&](const Message& message) {
    return message.value("type", "") == type;
  });
  if (found == inbox_.end()) return std::nullopt;
  Message message = std::move(*found);
  inbox_.erase(found);
  return message;
}

NodeEvent Rendezvous::poll() {
  pump();
  NodeEvent event;
  if (const auto stop = take("stop")) event.signal = stop->value("signal", 15);
  if (const auto failed = take("failed")) event.failure = failed->value("why", "");
  if (lost_ && event.failure.empty()) event.failure = "the launcher of node 0 is gone.";
  return event;
}

void Rendezvous::failed_here(const std::string& why) { send({{"type", "failed"}, {"why", why}}); }

void Rendezvous::stop_here(int signal) { send({{"type", "stop"}, {"signal", signal}}); }

void Rendezvous::finished(const JobResult& result, bool over) {
  send({{"type", "done"},
        {"exit_code", result.exit_code},
        {"error", result.error},
        {"first_hand", result.first_hand},
        {"over", over}});
}

std::optional<Verdict> Rendezvous::verdict() {
  pump();
  const auto found = std::find_if(inbox_.begin(), inbox_.end(), [](const Message& message) {
    return message.value("type", "") == "verdict";
  });
  if (found != inbox_.end()) {
    const Message verdict = *found;
    inbox_.erase(inbox_.begin(), found + 1);  // what was said in the start that is over
    return Verdict{.again = verdict.value("again", false),
                   .result = {verdict.value("exit_code", kRankDied), verdict.value("error", "")}};
  }
  if (lost_) return Verdict{false, {kRankDied, "the launcher of node 0 is gone."}};
  return std::nullopt;
}

}  // namespace lockstep::launch
