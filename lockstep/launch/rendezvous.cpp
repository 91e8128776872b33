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

using rendezvous::Channel;
using rendezvous::Clock;
using rendezvous::Lost;
using rendezvous::Message;
using rendezvous::Side;
using std::chrono::milliseconds;

constexpr milliseconds kLongestNap{100};
constexpr milliseconds kAnswerPatience{5'000};  // of node 0 to a greeting, and to a hello
constexpr const char* kHowToMakeOne =
    "To make one: export LOCKSTEP_JOB_TOKEN=$(openssl rand -hex 16)";
constexpr size_t kLeastToken = 16;
constexpr size_t kMostToken = 1024;

/// The next message. Nothing: the time is over. Throws Lost.
std::optional<Message> receive_until(Channel& channel, Clock::time_point deadline) {
  for (;;) {
    if (auto message = channel.receive()) return message;
    if (!rendezvous::wait_readable(channel.fd(), deadline)) return std::nullopt;
  }
}

/// What node 0 answers to the hello of this node. Nothing: the time is over. Throws Lost.
std::optional<Message> say_hello(Channel& channel, const NodeOptions& options,
                                 Clock::time_point deadline) {
  while (!channel.greet()) {
    if (!rendezvous::wait_readable(channel.fd(), deadline)) return std::nullopt;
  }
  channel.send(hello_of(options));
  return receive_until(channel, deadline);
}

void check_token(const NodeOptions& options) {
  const size_t bytes = options.token.size();
  if (bytes > 0 && (bytes < kLeastToken || bytes > kMostToken)) {
    throw UsageError(base::str("the job token has ", bytes, " bytes: must be ", kLeastToken, " to ",
                               kMostToken, ". ", kHowToMakeOne));
  }
  if (bytes > 0 || rendezvous::is_loopback(options.host, options.port)) return;
  throw UsageError(base::str(
      "--rendezvous ", options.host, ":", options.port,
      ": others reach this address too, so nodes need a job token, the same on all of them.\n  ",
      kHowToMakeOne,
      "\n  or put it into a file that only you can read: --rendezvous-token-file FILE"));
}

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
  check_token(options);
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
  try {
    start_ = knock(where, patience);
    if (start_["type"] == "welcome") {
      // Node 0 gives up by itself, and says for whom it waited: a second more lets it.
      const auto deadline = Clock::now() + options_.timeout + std::chrono::seconds(1);
      const auto start = receive_until(*channel_, deadline);
      if (!start) throw CommError(base::str(where, "no word from node 0 for ", patience, "."));
      start_ = *start;
    }
  } catch (const Lost& lost) {
    throw CommError(base::str(where, "node 0: ", lost.why, "."));
  }
  if (start_["type"] == "refused") {
    throw CommError(base::str(where, "node 0 has turned node ", options_.node_rank,
                              " away: ", start_.value("why", "")));
  }
}

/// Comes to node 0 until that answers: "welcome", or "refused". Throws Lost for what coming again
/// does not mend; CommError when the time is over.
Message Rendezvous::knock(const std::string& where, const std::string& patience) {
  const auto deadline = Clock::now() + options_.timeout;
  std::string state;
  for (milliseconds nap{1};; nap = std::min(2 * nap, kLongestNap)) {
    try {
      auto connection = rendezvous::connect_to(options_.host, options_.port);
      state = connection ? "node 0 listens but does not answer" : "node 0 does not listen";
      if (connection) {
        channel_.emplace(std::move(*connection), Side::comes, options_.token);
        const auto answer_by = std::min(deadline, Clock::now() + kAnswerPatience);
        if (auto answer = say_hello(*channel_, options_, answer_by)) return *answer;
      }
    } catch (const Lost& lost) {
      // Strangers may have pushed this node out of the door (rendezvous_door.h).
      if (!lost.ended) throw;
    }
    if (Clock::now() >= deadline) {
      throw CommError(base::str(where, "after ", patience, " ", state, "; this is node ",
                                options_.node_rank, " of ", options_.nodes,
                                ".\n  Is it started there, and is the port open between nodes?"));
    }
    std::this_thread::sleep_for(nap);
  }
}

Share Rendezvous::share() {
  const Message start = next_start();
  try {
    return share_of(start);
  } catch (const nlohmann::json::exception&) {
    throw CommError(base::str("rendezvous at ", options_.host, ":", options_.port,
                              ": node 0 starts the ranks in words that this node does not know.\n  "
                              "Install one version of Lockstep on all nodes."));
  }
}

/// What node 0 says of the coming start.
Message Rendezvous::next_start() {
  const auto deadline = Clock::now() + options_.timeout;
  while (start_.is_null()) {
    pump();
    start_ = take("start").value_or(Message());
    if (start_.is_null() && (lost_ || Clock::now() >= deadline)) {
      throw CommError("node 0 does not say how all ranks start again: its launcher is gone.");
    }
  }
  return std::exchange(start_, Message());
}

Share Rendezvous::share_of(const Message& start) const {
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
    channel_->send(message);
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
    while (!lost_) {
      auto message = channel_->receive();
      if (!message) break;
      inbox_.push_back(std::move(*message));
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
