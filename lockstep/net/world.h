/// How a rank comes into the world: engines make an Endpoint, the Endpoint gives the world group.
///
///   shm       processes of one host over one shared mapping (a memfd whose descriptor the launcher
///             hands down). The launcher keeps the region too: it reads where each rank was last
///             seen and can abort the job.
///   threads   ranks as threads of one process over the same structures: for tests.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/net/group.h"
#include "lockstep/net/points.h"
#include "lockstep/plan/network_model.h"

namespace lockstep::net {

class MessageEngine;

/// What a rank was last seen doing. Any process that maps the region can read it.
struct RankStatus {
  int64_t step = -1;   // optimizer step, -1 before the first
  std::string phase;   // "start", "forward", "backward", "reduce", ... at most 31 bytes
  std::string detail;  // "bucket 5", "leaf 1.0": at most 63 bytes
  int pid = 0;
  bool finished = false;  // left in good order
  std::string error;      // the message it failed with; at most 4000 bytes
  int exit_code = 0;      // of that failure
};

/// The shared mapping of a job: control pages and heaps of all ranks.
class Region {
 public:
  /// A new memfd for `ranks` ranks. Sparse: memory is taken when touched. Huge pages are asked for.
  /// heap_bytes is the address space of each rank's heap.
  static std::shared_ptr<Region> create(int ranks, int64_t heap_bytes = int64_t{64} << 30);
  /// The mapping behind an inherited descriptor. Throws EnvironmentError if it is none of ours.
  static std::shared_ptr<Region> attach(int fd);
  /// Anonymous memory of this process: the threads engine.
  static std::shared_ptr<Region> in_process(int ranks, int64_t heap_bytes = int64_t{64} << 30);
  ~Region();

  int fd() const;  // -1 for in_process
  int ranks() const;

  /// The ranks of this host: all, unless others were named before they joined. Those of other hosts
  /// have regions of their own: what calls say of themselves goes to them by an engine of messages,
  /// and so do tensors of groups that span hosts. A group inside a host uses its region alone.
  std::vector<int> ranks_here() const;
  void set_ranks_here(const std::vector<int>& ranks);

  RankStatus status(int rank) const;
  /// The rank's last calls, newest last: at most 20 lines such as
  /// `all_reduce of 100 float32 (sum) on "dp" #317`.
  std::vector<std::string> recent_operations(int rank) const;
  /// The calls that the rank is in and has waited in for longer than a moment:
  /// `all_reduce of 100 float32 (sum) on "dp" #317, for 12.3 s, for rank 2`.
  std::vector<std::string> pending_calls(int rank) const;
  /// Ends every wait of every rank with a CommError that quotes `message`; the first call counts.
  void abort(const std::string& message);
  bool aborted() const;
  std::string abort_message() const;

  struct Impl;
  Impl& impl() const { return *impl_; }

 private:
  explicit Region(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// What each call does besides moving data. For measuring what that costs (bench/check_cost.py) and
/// for nothing else: without them a mismatch gives wrong data and a lost peer an endless wait.
struct CallChecks {
  bool guard = true;     // peers' fingerprints are compared
  bool ledger = true;    // calls and time are counted, recent calls kept
  bool watchdog = true;  // a wait looks for an abort, dead peers and its timeout
};

struct EndpointOptions {
  /// How long a rank waits for its peers before it gives up and says who is missing.
  std::chrono::milliseconds timeout{120'000};
  /// Ranks that share cores wait by sleeping at once instead of spinning first.
  bool oversubscribed = false;
  /// All on, except to measure what they cost.
  CallChecks checks = {};
  /// Direct is one pass over peers' memory here; other algorithms are plans over messages.
  plan::AlgorithmTable algorithms = {};
  /// Carries tensors between the ranks, all by plans; null: the region does. What calls say of
  /// themselves (guard, watchdog, abort) goes through the region in any case.
  std::shared_ptr<MessageEngine> engine = {};
  /// A network that is not there, for virtual clusters on the threads engine: all calls are plans,
  /// and take its time (Group::modelled_seconds).
  std::shared_ptr<const plan::NetworkModel> network = {};
  /// Called where a call passes one of the points, by the thread that makes it. For tests: it may
  /// throw, wait, or end the process.
  std::function<void(Point)> at_point = {};
};

/// One rank's way to its peers.
class Endpoint {
 public:
  /// `direct_memory`: peers can read and write any of this rank's memory (the threads engine). With
  /// an engine of messages it returns when all ranks have joined and are connected; throws
  /// CommError. Throws EnvironmentError if ranks are on several hosts and the engine keeps to one.
  static std::shared_ptr<Endpoint> join(std::shared_ptr<Region> region, int rank,
                                        bool direct_memory, const EndpointOptions& options = {});
  ~Endpoint();

  int rank() const;
  int size() const;
  Region& region() const;
  std::shared_ptr<Group> world();  // the group of all ranks, named "world"

  void set_status(int64_t step, const char* phase, const std::string& detail = {});
  /// Puts this rank's failure where launcher and peers find it, and aborts the job.
  void fail(const std::string& message, int exit_code);
  /// Ends every wait of every rank of the job with a CommError that quotes `message`.
  void abort(const std::string& message);
  /// Leaves in good order; over an engine of messages, when all ranks do.
  void finish();

  struct Impl;
  Impl& impl() const { return *impl_; }

 private:
  explicit Endpoint(std::unique_ptr<Impl> impl);
  void arrive();
  void meet_other_hosts();
  void pass(Point point) const;
  std::unique_ptr<Impl> impl_;
};

/// Runs `body(world group of the rank)` on `ranks` threads and joins them. The first exception of a
/// rank aborts the others and is rethrown: the one that caused it, not an echo.
void run_on_threads(int ranks, const std::function<void(const std::shared_ptr<Group>&)>& body,
                    const EndpointOptions& options = {});

}  // namespace lockstep::net
