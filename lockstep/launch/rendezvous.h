/// The launchers of a job on several nodes: they meet at node 0, learn which ranks are theirs, and
/// stay connected so that what ends one ends all.
///
///   node 0    listens on HOST:PORT until all are there, decides
///   node k    connects, again and again until node 0 is there and lets it in
///
/// Both ends prove that they know the job's token (rendezvous_channel.h); strangers at the port
/// neither end nor delay the job (rendezvous_door.h).
///
/// Global ranks follow (node rank, place on the node), in whatever order the nodes arrive.
/// Launchers that run on one host (same boot, network namespace and user) share one region;
/// otherwise ranks have none, and programs that use Lockstep's own communication are refused.
///
/// A start ends on all nodes together: node 0 hears from each, picks the first cause, and tells all
/// what it was and whether everybody starts again.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <string>

#include "lockstep/launch/job.h"
#include "lockstep/launch/rendezvous_channel.h"
#include "lockstep/launch/rendezvous_wire.h"

namespace lockstep::launch {

struct NodeOptions {
  int nodes = 1;
  int node_rank = 0;
  std::string host;  // of node 0
  int port = 0;
  /// The job's secret, the same on all nodes; 16 to 1024 bytes. May be empty where HOST is the
  /// loopback: then every process of this machine can claim a place.
  std::string token = {};
  int ranks = 1;         // on this node; nodes may differ
  int max_restarts = 0;  // the same on all nodes
  std::chrono::milliseconds timeout{120'000};
};

/// "node7:29400" or "[::1]:29400". Throws UsageError.
void parse_rendezvous(const std::string& text, NodeOptions& options);

class RendezvousLeader;

class Rendezvous : public Nodes {
 public:
  /// Blocks until all nodes are there. Throws CommError: the time is over (who has come), or this
  /// node was refused (its place is taken, it was told of another number of nodes or restarts, its
  /// token is another); EnvironmentError: node 0 cannot listen, the host has no address;
  /// UsageError: also a HOST beyond the loopback without a token.
  explicit Rendezvous(const NodeOptions& options);
  ~Rendezvous() override;

  Share share() override;
  NodeEvent poll() override;
  void failed_here(const std::string& why) override;
  void stop_here(int signal) override;
  void finished(const JobResult& result, bool over) override;
  std::optional<Verdict> verdict() override;

 private:
  void meet();
  rendezvous::Message knock(const std::string& where, const std::string& patience);
  void send(const rendezvous::Message& message);
  void pump();
  std::optional<rendezvous::Message> take(const std::string& type);
  rendezvous::Message next_start();
  Share share_of(const rendezvous::Message& start) const;

  NodeOptions options_;
  std::unique_ptr<RendezvousLeader> leader_;    // on node 0
  std::optional<rendezvous::Channel> channel_;  // on the others
  std::deque<rendezvous::Message> inbox_;
  rendezvous::Message start_;  // what the coming start is to be
  bool lost_ = false;
};

}  // namespace lockstep::launch
