#include "lockstep/launch/rendezvous_leader.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <random>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/launch/failure_report.h"
#include "lockstep/launch/free_port.h"

namespace lockstep::launch {
namespace {

using rendezvous::Clock;
using rendezvous::Lost;
using rendezvous::Message;

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
    : options_(options), listener_(rendezvous::listen_on(options.host, options.port)) {
  nodes_[0].hello = hello_of(options);
  std::random_device random;
  job_id_ = base::str(std::hex, random(), random());
}

void RendezvousLeader::gather() {
  const auto deadline = Clock::now() + options_.timeout;
  while (static_cast<int>(nodes_.size()) < options_.nodes) {
    if (!rendezvous::wait_readable(listener_, deadline)) {
      const std::string missing = missing_text();
      tell_others(0, {{"type", "refused"}, {"why", missing}});
      throw CommError(missing);
    }
    accept_one();
  }
  listener_.reset();
  for (const auto& [node, unused] : nodes_) tell(node, start_of(node));
}

void RendezvousLeader::accept_one() {
  auto connection = rendezvous::accept_from(listener_);
  if (!connection) return;
  Message hello;
  try {
    hello = rendezvous::receive(*connection);
    refused_ = objection_to(hello);
    if (refused_.empty()) {
      Node& node = nodes_[hello["node"].get<int>()];
      node.connection = std::move(*connection);
      node.hello = hello;
      return;
    }
    rendezvous::send(*connection, {{"type", "refused"}, {"why", refused_}});
  } catch (const Lost& lost) {
    refused_ = "somebody who connected: " + lost.why;
  }
}

std::string RendezvousLeader::objection_to(const Message& hello) const {
  const auto number = [&](const char* name) {
    return hello.contains(name) && hello[name].is_number_integer() ? hello[name].get<int>() : -1;
  };
  const auto text = [&](const char* name) {
    return hello.contains(name) && hello[name].is_string();
  };
  if (number("ranks") < 1 || !text("host") || !text("name"))
    return "its first message is incomplete.";
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
  if (!refused_.empty()) text += "\n  Turned away: " + refused_;
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
    if (nodes_.at(node).connection.get() >= 0) {
      rendezvous::send(nodes_.at(node).connection, message);
    }
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
  std::vector<int> order;
  std::vector<pollfd> entries;
  for (const auto& [node, there] : nodes_) {
    if (there.connection.get() < 0) continue;
    order.push_back(node);
    entries.push_back({.fd = there.connection.get(), .events = POLLIN, .revents = 0});
  }
  if (::poll(entries.data(), entries.size(), 0) <= 0) return;
  for (size_t i = 0; i < order.size(); ++i) {
    if (entries[i].revents == 0) continue;
    try {
      hear(order[i], rendezvous::receive(nodes_.at(order[i]).connection));
    } catch (const Lost& lost) {
      lose(order[i], lost.why);
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
  nodes_.at(node).connection.reset();
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
