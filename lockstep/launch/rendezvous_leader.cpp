#include "lockstep/launch/rendezvous_leader.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/launch/failure_report.h"
#include "lockstep/launch/free_port.h"

namespace lockstep::launch {
namespace {

using rendezvous::Clock;
using rendezvous::Lost;
using rendezvous::Message;

constexpr int kMostRanks = 10'000;  // of a node; with 100'000 nodes the world is still an int

std::string host_name() {
  std::string name(256, '\0');
  if (::gethostname(name.data(), name.size() - 1) != 0) return "?";
  return name.c_str();
}

/// The same for processes that can share memory: one boot of one machine, one network namespace
/// (abstract sockets belong to it), one user.
std::string host_identity() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  std::string network(64, '\0');
  const ssize_t length = ::readlink("/proc/self/ns/net", network.data(), network.size());
  network.resize(static_cast<size_t>(std::max<ssize_t>(length, 0)));
  return base::str(boot, " ", network, " user ", ::geteuid());
}

/// Text of others is shown on this terminal.
bool is_printable(const std::string& text) {
  return std::all_of(text.begin(), text.end(),
                     [](unsigned char byte) { return byte >= 0x20 && byte != 0x7f; });
}

std::string nodes_text(const std::vector<int>& nodes) {
  std::vector<std::string> words;
  for (const int node : nodes) words.push_back(std::to_string(node));
  return (nodes.size() == 1 ? "node " : "nodes ") + base::joined(words);
}

}  // namespace

Message hello_of(const NodeOptions& options) {
  return {{"type", "hello"},
          {"node", options.node_rank},
          {"nodes", options.nodes},
          {"ranks", options.ranks},
          {"max_restarts", options.max_restarts},
          {"name", host_name()},
          {"host", host_identity()}};
}

RendezvousLeader::RendezvousLeader(const NodeOptions& options)
    : options_(options), door_(std::in_place, options.host, options.port, options.token) {
  nodes_[0].hello = hello_of(options);
  std::random_device random;
  job_id_ = base::str(std::hex, random(), random());
}

void RendezvousLeader::gather() {
  const auto deadline = Clock::now() + options_.timeout;
  while (static_cast<int>(nodes_.size()) < options_.nodes) {
    auto guest = door_->next(deadline);
    if (!guest) {
      const std::string missing = missing_text();
      tell_others(0, {{"type", "refused"}, {"why", missing}});
      throw CommError(missing);
    }
    let_in(std::move(*guest));
  }
  door_.reset();
  for (const auto& [node, unused] : nodes_) tell(node, start_of(node));
}

void RendezvousLeader::let_in(RendezvousDoor::Guest guest) {
  const std::string objection = objection_to(guest.hello);
  try {
    if (!objection.empty()) {
      refused_ = objection;
      guest.channel.send({{"type", "refused"}, {"why", objection}});
      return;
    }
    guest.channel.send({{"type", "welcome"}});
  } catch (const Lost&) {
    return;  // It is gone, and may come again.
  }
  Node& node = nodes_[guest.hello["node"].get<int>()];
  node.channel = std::move(guest.channel);
  node.hello = std::move(guest.hello);
}

std::string RendezvousLeader::objection_to(const Message& hello) const {
  const auto number = [&](const char* name) {
    const bool fits = hello.contains(name) && hello[name].is_number_integer() &&
                      std::in_range<int>(hello[name].get<int64_t>());
    return fits ? hello[name].get<int>() : -1;
  };
  const auto is_text = [&](const char* name) {
    return hello.contains(name) && hello[name].is_string() &&
           is_printable(hello[name].get_ref<const std::string&>());
  };
  if (number("ranks") < 1 || number("ranks") > kMostRanks || !is_text("host") || !is_text("name")) {
    return "its first message is incomplete.";
  }
  const std::string who = "the launcher on " + hello["name"].get<std::string>();
  if (number("nodes") != options_.nodes) {
    return base::str(who, " says --nnodes ", number("nodes"), ", node 0 --nnodes ", options_.nodes,
                     ".");
  }
  if (number("max_restarts") != options_.max_restarts) {
    return base::str(who, " says --max-restarts ", number("max_restarts"),
                     ", node 0 --max-restarts ", options_.max_restarts, ".");
  }
  const int node = number("node");
  if (node < 0 || node >= options_.nodes) {
    return base::str(who, " says --node-rank ", node, ", which is not below --nnodes.");
  }
  if (nodes_.contains(node)) {
    return base::str("--node-rank ", node, " has come twice: from ", name_of(node), " and from ",
                     hello["name"].get<std::string>(), ".");
  }
  return "";
}

std::string RendezvousLeader::name_of(int node) const {
  return nodes_.at(node).hello["name"].get<std::string>();
}

std::string RendezvousLeader::missing_text() const {
  std::vector<int> come;
  std::vector<int> missing;
  for (int node = 0; node < options_.nodes; ++node) {
    (nodes_.contains(node) ? come : missing).push_back(node);
  }
  std::string text =
      base::str("rendezvous at ", options_.host, ":", options_.port, ": after ",
                static_cast<double>(options_.timeout.count()) / 1e3, " s ", nodes_text(missing),
                missing.size() == 1 ? " has" : " have", " not come; ", nodes_text(come),
                come.size() == 1 ? " has." : " have.");
  const std::string& away = refused_.empty() ? door_->put_out() : refused_;
  if (!away.empty()) text += "\n  Turned away: " + away;
  if (rendezvous::is_loopback(options_.host, options_.port)) {
    text +=
        base::str("\n  ", options_.host, " is the loopback of this machine, which others cannot ",
                  "reach: for nodes elsewhere give an address of the network between them.");
  }
  return text;
}

Message RendezvousLeader::start_of(int node) {
  int first = 0;
  int world = 0;
  bool one_host = true;
  for (const auto& [other, there] : nodes_) {
    const int ranks = there.hello["ranks"].get<int>();
    if (other < node) first += ranks;
    world += ranks;
    one_host = one_host && there.hello["host"] == nodes_.at(0).hello["host"];
  }
  if (master_port_ == 0) master_port_ = free_port();
  return {{"type", "start"},     {"first_rank", first},         {"world_size", world},
          {"restart", restart_}, {"master_port", master_port_}, {"job_id", job_id_},
          {"one_host", one_host}};
}

void RendezvousLeader::tell(int node, const Message& message) {
  if (node == 0) {
    own_inbox_.push_back(message);
    return;
  }
  try {
    if (auto& channel = nodes_.at(node).channel) channel->send(message);
  } catch (const Lost&) {
    // Reading from it says the same, and that is where it is dealt with.
  }
}

void RendezvousLeader::tell_others(int node, const Message& message) {
  for (const auto& [other, unused] : nodes_) {
    if (other != node) tell(other, message);
  }
}

void RendezvousLeader::pump() {
  for (auto& [node, there] : nodes_) {
    try {
      while (there.channel) {
        const auto message = there.channel->receive();
        if (!message) break;
        hear(node, *message);
      }
    } catch (const Lost& lost) {
      lose(node, lost.why);
    } catch (const Message::exception&) {
      lose(node, "what it says has another form than this launcher knows");
    }
  }
}

void RendezvousLeader::hear(int node, const Message& message) {
  const std::string type = message.value("type", "");
  if (type == "failed") {
    failed_.push_back(node);
    if (failed_.size() > 1) return;  // the others know
    tell_others(node, {{"type", "failed"},
                       {"why", base::str("node ", node, " (", name_of(node),
                                         "): ", message.value("why", "it failed"))}});
  } else if (type == "stop") {
    tell_others(node, message);
  } else if (type == "done") {
    nodes_.at(node).done = message;
    settle();
  }
}

/// A launcher that is gone has taken its ranks along: there is nothing to start again.
void RendezvousLeader::lose(int node, const std::string& why) {
  nodes_.at(node).channel.reset();
  if (settled_) return;
  const std::string text =
      base::str("the launcher of node ", node, " (", name_of(node), ") is gone: ", why, ".");
  if (failed_.empty()) tell_others(node, {{"type", "failed"}, {"why", text}});
  failed_.push_back(node);
  nodes_.at(node).done = Message{{"exit_code", kRankDied},
                                 {"error", text},
                                 {"over", true},
                                 {"first_hand", true},
                                 {"gone", true}};
  settle();
}

/// The node whose failure the others followed; -1: none failed.
int RendezvousLeader::cause() const {
  std::vector<int> candidates = failed_;
  for (const auto& [node, unused] : nodes_) candidates.push_back(node);
  int echo = -1;
  for (const int node : candidates) {
    const Message& done = *nodes_.at(node).done;
    const int code = done.value("exit_code", kRankDied);
    if (code == 0 || code == kStoppedOnRequest) continue;
    if (done.value("first_hand", true)) return node;
    if (echo < 0) echo = node;
  }
  return echo;
}

void RendezvousLeader::settle() {
  bool over = false;
  int code = 0;
  for (const auto& [node, there] : nodes_) {
    if (!there.done) return;
    over = over || there.done->value("over", false);
    code = std::max(code, there.done->value("exit_code", kRankDied));
  }
  const int node = cause();
  std::string error;
  if (node >= 0) {
    code = nodes_.at(node).done->value("exit_code", kRankDied);
    error = nodes_.at(node).done->value("error", "");
  }
  const bool again = node >= 0 && !over && restart_ < options_.max_restarts;
  settled_ = !again;
  const bool gone = node >= 0 && nodes_.at(node).done->value("gone", false);
  failed_.clear();
  master_port_ = 0;
  if (again) ++restart_;
  for (auto& [other, there] : nodes_) {
    const bool say_where = node >= 0 && other != node && !gone;
    Message verdict = {
        {"type", "verdict"},
        {"again", again},
        {"exit_code", code},
        {"error", say_where ? base::str("node ", node, " (", name_of(node), "): ", error) : error}};
    there.done.reset();
    tell(other, verdict);
    if (again) tell(other, start_of(other));
  }
}

}  // namespace lockstep::launch
