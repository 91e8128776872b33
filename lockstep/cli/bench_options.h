/// What `lockstep bench` was asked for: its arguments, checked, and the files that they name, read.
///
/// Whatever the ranks would refuse is refused here, before one of them starts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/net/types.h"
#include "lockstep/plan/network_model.h"
#include "lockstep/plan/tuned_table.h"

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
  /// The ranks of each host, or as if they were; all on one where nothing names any.
  std::vector<std::vector<int>> hosts = {};
  bool several_hosts = false;  // they are so in fact: known when the ranks have met
  int ranks_per_host = 0;      // as if so many shared a host; 0: those of the topology file, or all
  std::string topology;        // a file: the time is that of its links, on the threads engine
  double jitter = 0;           // plan::NetworkModel
  int slow_rank = -1;
  double slow_factor = 1;
  std::shared_ptr<const plan::NetworkModel> network = {};  // of the topology file; else null
  bool in_heap = true;      // tensors in the shared heap, or in ordinary memory
  bool print_plan = false;  // and start nothing
  bool fit = false;         // latency and bandwidth of each algorithm's times
  bool json = false;

  std::string table_file;           // algorithms are those of this file, by size
  plan::AlgorithmTable table = {};  // what it says for these ranks: no rules where that is nothing
  bool by_table = false;            // algorithms are the table's, else all of `algorithms`
  bool by_default = true;           // neither was asked for

  std::string tune_file;  // to be made, or added to: nothing else is shown
  std::vector<net::Operation> tuned_operations = {};
  int rounds = 3;  // in which all candidates are measured in turn
};

/// An algorithm, and sizes that it is measured at.
struct BenchPass {
  plan::Algorithm algorithm;
  std::vector<int64_t> sizes;
  bool operator==(const BenchPass&) const = default;
};

/// Reads the arguments of `lockstep bench`. False: help was asked for, and has been printed.
/// Throws UsageError.
bool parse_bench(const std::vector<std::string>& args, BenchOptions& options);

/// What the operation is called in plans.
plan::Collective collective_of(net::Operation operation);

/// Whether a rank has a part for each rank: then sizes are those of all parts together.
bool has_a_part_for_each(net::Operation operation);

/// Elements of a rank's tensor of `bytes`, or of each part of it.
int64_t count_of(const BenchOptions& options, int64_t bytes);

/// The sizes in bytes that are measured.
std::vector<int64_t> bench_sizes(const BenchOptions& options);

/// What is measured, in order: every algorithm at all sizes, or runs of sizes with the algorithm
/// that the table has for them.
std::vector<BenchPass> bench_passes(const BenchOptions& options);

/// Whether each of the options' hosts holds as many ranks.
bool hosts_are_alike(const BenchOptions& options);

/// What a table would be for. Throws UsageError where hosts are of unequal size.
plan::TunedFor tuned_for(const BenchOptions& options, const std::string& engine);

/// "64M" -> 67108864. Throws UsageError.
int64_t parse_size(const std::string& text);

}  // namespace lockstep::cli
