/// `lockstep bench OP -n RANKS`: how fast collectives are here, in nccl-tests' columns.
///
/// Every rank writes its tensor anew before each timed call, as a backward pass does: a tensor that
/// lies in the right cache from the call before would flatter. A barrier, then the call; the time
/// of an iteration is that of its slowest rank.
///
/// Source  columns and bandwidths: NVIDIA/nccl-tests;  docs/concepts/collectives.md
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/net/types.h"
#include "lockstep/plan/algorithm_table.h"
#include "lockstep/plan/network_model.h"

namespace lockstep::cli {

struct BenchOptions {
  net::Operation operation = net::Operation::all_reduce;
  int ranks = 2;
  int64_t min_bytes = 8;
  int64_t max_bytes = 256 << 20;
  int64_t factor = 2;      // from one size to the next
  int64_t step_bytes = 0;  // added instead of multiplied if not 0
  int iterations = 20;
  int warmup = 1;
  bool check = true;
  std::vector<std::string> engines = {"shm"};
  std::vector<plan::Algorithm> algorithms = {plan::Algorithm::direct};
  int ranks_per_host = 0;  // for hierarchical: as if so many shared a host; 0: those that do
  std::vector<std::vector<int>> hosts;  // the ranks of each, where they are on several
  std::string topology;  // a file: the time is that of its links, on the threads engine
  double jitter = 0;     // plan::NetworkModel
  int slow_rank = -1;
  double slow_factor = 1;
  bool in_heap = true;      // tensors in the shared heap, or in ordinary memory
  bool print_plan = false;  // and start nothing
  bool fit = false;         // latency and bandwidth of each algorithm's times
  bool json = false;
};

/// Reads the arguments of `lockstep bench`. False: help was asked for, and has been printed.
bool parse_bench(const std::vector<std::string>& args, BenchOptions& options);

/// What the options' operation is called in plans.
plan::Collective collective_of(net::Operation operation);

/// The rank that broadcasts.
inline constexpr int kBenchRoot = 0;

/// The plan of a call. `count`: elements of a rank's tensor; of each block or slice where a rank
/// has one for every rank. An all-to-all that is direct is pairwise.
plan::CollectivePlan plan_of(const BenchOptions& options, plan::Algorithm algorithm, int64_t count);

/// The network of the options' topology file; null if there is none. Throws UsageError.
std::shared_ptr<const plan::NetworkModel> network_of(const BenchOptions& options);

/// The ranks of each host, or as if they were; all of them where the options name none.
std::vector<std::vector<int>> hosts_of(const BenchOptions& options);

/// `algorithm` for everything, over the options' hosts.
plan::AlgorithmTable table_of(const BenchOptions& options, plan::Algorithm algorithm);

/// The sizes in bytes that are measured.
std::vector<int64_t> bench_sizes(const BenchOptions& options);

/// Bus bandwidth over algorithm bandwidth: what a link between ranks must carry.
double bus_factor(net::Operation operation, int ranks);

/// "64M" -> 67108864. Throws UsageError.
int64_t parse_size(const std::string& text);

/// `lockstep bench ARGS`: starts the ranks and waits for them. 8 if a result was wrong.
int bench_command(const std::vector<std::string>& args);

/// What each of the started processes does; the same arguments. Not for users.
int bench_rank_command(const std::vector<std::string>& args);

}  // namespace lockstep::cli
