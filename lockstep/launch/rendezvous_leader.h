/// What node 0 does for all: it gathers the nodes, passes on what ends the job, and gives the
/// verdict when every node is through.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/rendezvous.h"
#include "lockstep/launch/rendezvous_door.h"

namespace lockstep::launch {

/// What a node says when it comes. Two hosts that give the same `host` can share memory.
rendezvous::Message hello_of(const NodeOptions& options);

class RendezvousLeader {
 public:
  explicit RendezvousLeader(const NodeOptions& options);

  /// Until all nodes have come; nobody can connect after that. Throws CommError, after telling
  /// those who came.
  void gather();

  /// Takes in what has come from the other nodes.
  void pump();
  /// What `node` says; node 0 itself calls this too.
  void hear(int node, const rendezvous::Message& message);

  /// For node 0 itself.
  std::deque<rendezvous::Message>& own_inbox() { return own_inbox_; }

 private:
  struct Node {
    std::optional<rendezvous::Channel> channel;  // none for node 0, nor for one that is gone
    rendezvous::Message hello;
    std::optional<rendezvous::Message> done;  // in this start
  };

  void let_in(RendezvousDoor::Guest guest);
  std::string objection_to(const rendezvous::Message& hello) const;
  std::string missing_text() const;
  void tell(int node, const rendezvous::Message& message);
  void tell_others(int node, const rendezvous::Message& message);
  void lose(int node, const std::string& why);
  void settle();
  int cause() const;
  rendezvous::Message start_of(int node);
  std::string name_of(int node) const;

  const NodeOptions options_;
  std::optional<RendezvousDoor> door_;  // until all have come
  std::map<int, Node> nodes_;
  std::string refused_;  // why the last one that knew the token was turned away
  std::deque<rendezvous::Message> own_inbox_;
  std::string job_id_;
  int restart_ = 0;
  int master_port_ = 0;
  std::vector<int> failed_;  // nodes in the order in which they said so
  bool settled_ = false;
};

}  // namespace lockstep::launch
