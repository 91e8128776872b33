#include "lockstep/cli/bench_options.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/cli/algorithm_file.h"
#include "lockstep/cli/arguments.h"
#include "lockstep/cli/topology_file.h"

namespace lockstep::cli {
namespace {

using net::Operation;

// Two of them, and room for what algorithms keep beside them, in the 64 GiB of a rank's heap.
constexpr int64_t kLargestInHeap = 16 * GiB;

const std::map<std::string, Operation>& operations() {
  static const std::map<std::string, Operation> all = {
      {"all_reduce", Operation::all_reduce},         {"all_gather", Operation::all_gather},
      {"reduce_scatter", Operation::reduce_scatter}, {"broadcast", Operation::broadcast},
      {"all_to_all", Operation::all_to_all},
  };
  return all;
}

/// Throws UsageError for one that the operation does not have.
std::vector<plan::Algorithm> parse_algorithms(const std::vector<std::string>& list,
                                              Operation operation) {
  std::vector<plan::Algorithm> algorithms;
  const std::vector<plan::Algorithm> known = plan::algorithms_of(collective_of(operation));
  for (const std::string& name : list) {
    const plan::Algorithm algorithm = plan::parse_algorithm(name);
    if (std::find(known.begin(), known.end(), algorithm) == known.end()) {
      std::vector<std::string> names;
      for (const plan::Algorithm one : known) names.push_back(plan::name_of(one));
      throw UsageError(base::str("lockstep bench: ", net::name_of(operation), " by ", name,
                                 " is none; there are ", base::joined(names), "."));
    }
    algorithms.push_back(algorithm);
  }
  return algorithms;
}

std::shared_ptr<const plan::NetworkModel> read_network(const BenchOptions& options) {
  auto network = std::make_shared<plan::NetworkModel>();
  network->placement = plan::place_ranks(read_topology(options.topology), options.ranks);
  network->jitter = options.jitter;
  network->slow_rank = options.slow_rank;
  network->slow_factor = options.slow_factor;
  return network;
}

std::vector<std::vector<int>> hosts_of(const BenchOptions& options) {
  std::vector<std::vector<int>> hosts;
  if (options.network && options.ranks_per_host == 0) {
    for (int rank = 0; rank < options.ranks; ++rank) {
      const auto host =
          static_cast<size_t>(options.network->placement.seats[static_cast<size_t>(rank)].host);
      if (hosts.size() <= host) hosts.resize(host + 1);
      hosts[host].push_back(rank);
    }
    return hosts;
  }
  const int each = options.ranks_per_host > 0 ? options.ranks_per_host : options.ranks;
  for (int rank = 0; rank < options.ranks; ++rank) {
    if (rank % each == 0) hosts.emplace_back();
    hosts.back().push_back(rank);
  }
  return hosts;
}

/// Options that do not go together.
void check_combination(const BenchOptions& options) {
  if (options.ranks_per_host > 0 && options.ranks % options.ranks_per_host != 0) {
    throw UsageError(base::str("lockstep bench: ", options.ranks, " ranks are no whole hosts of ",
                               options.ranks_per_host, "."));
  }
  if (!options.topology.empty() && options.engines != std::vector<std::string>{"threads"}) {
    throw UsageError("lockstep bench: --topology models a network: add --engine threads.");
  }
  if (options.topology.empty() && (options.jitter > 0 || options.slow_rank >= 0)) {
    throw UsageError("lockstep bench: --jitter and --slow-rank are of a --topology.");
  }
  if (options.slow_rank >= options.ranks) {
    throw UsageError(base::str("lockstep bench: --slow-rank ", options.slow_rank,
                               " is none of the ranks 0 to ", options.ranks - 1, "."));
  }
  if (options.min_bytes < 1 || options.min_bytes > options.max_bytes) {
    throw UsageError(base::str("lockstep bench: sizes from ", options.min_bytes, " to ",
                               options.max_bytes,
                               " bytes; -b must be 1 or more, and not above -e."));
  }
}

struct Given {
  bool algorithms;
  bool rounds;
};

/// Flags of which one would go unheard.
void check_flags(const BenchOptions& options, const Given& given) {
  const bool tunes = !options.tune_file.empty();
  if (options.print_plan && (options.fit || options.json || tunes)) {
    throw UsageError(
        "lockstep bench: --plan starts nothing, so there are no times for --fit, --json or "
        "--tune.");
  }
  if (!options.table_file.empty() && given.algorithms) {
    throw UsageError("lockstep bench: --table chooses the algorithm: leave out --algorithm.");
  }
  if (!options.table_file.empty() && options.engines.size() > 1) {
    throw UsageError(
        "lockstep bench: a table may have other algorithms for each engine: --table wants one "
        "--engine.");
  }
  if (tunes && (options.fit || options.json || given.algorithms || !options.table_file.empty())) {
    throw UsageError(
        "lockstep bench: --tune measures every algorithm that keeps the bits, and writes a file.\n"
        "  Leave out --algorithm, --table, --fit and --json.");
  }
  if (tunes && options.ranks < 2) {
    throw UsageError("lockstep bench: one rank has nobody to send to: --tune wants -n 2 or more.");
  }
  if (!tunes && given.rounds) {
    throw UsageError("lockstep bench: --rounds are those of --tune FILE.");
  }
}

/// "all_reduce,broadcast". Throws UsageError for what is none.
std::vector<Operation> parse_operations(const std::string& list) {
  std::vector<Operation> found;
  std::vector<std::string> names;
  for (const auto& [name, value] : operations()) names.push_back(name);
  std::istringstream words(list);
  for (std::string word; std::getline(words, word, ',');) {
    const auto known = operations().find(word);
    if (known == operations().end()) {
      const std::string near = base::nearest(word, names);
      throw UsageError(base::str("lockstep bench: there is no operation \"", word, "\".\n  ",
                                 near.empty() ? base::str("There are ", base::joined(names), ".")
                                              : base::str("Did you mean \"", near, "\"?")));
    }
    found.push_back(known->second);
  }
  return found;
}

/// Of a benchmark one; of a table those that there can be rows for, all where none are named.
void set_operations(BenchOptions& options, const std::string& list) {
  const std::vector<Operation> found = parse_operations(list);
  if (options.tune_file.empty()) {
    if (found.size() == 1) {
      options.operation = found[0];
      return;
    }
    throw UsageError(
        "lockstep bench: one operation is measured at a time.\n  lockstep bench all_reduce -n 2, "
        "or "
        "lockstep bench --tune FILE -n 2 for all");
  }
  std::vector<std::string> names;
  for (const plan::Collective tuned : plan::kTunedOperations) {
    names.push_back(name_of(tuned));
    if (found.empty()) options.tuned_operations.push_back(operations().at(names.back()));
  }
  for (const Operation operation : found) {
    const auto at = std::find(names.begin(), names.end(), net::name_of(operation));
    if (at == names.end()) {
      throw UsageError(base::str("lockstep bench: ", net::name_of(operation),
                                 " has no size that all ranks know beforehand, so no table.\n  "
                                 "There are tables of ",
                                 base::joined(names), "."));
    }
    options.tuned_operations.push_back(operation);
  }
  options.operation = options.tuned_operations.front();
}

/// Empty where the file has nothing for these ranks.
plan::AlgorithmTable followed(const BenchOptions& options) {
  const plan::TunedTable table = read_algorithm_file(options.table_file);
  const plan::TunedSection* section =
      plan::section_for(table, tuned_for(options, options.engines[0]));
  return section == nullptr ? plan::AlgorithmTable{} : plan::rules_of(*section);
}

/// Of two tensors that stand side by side in a rank's heap.
void check_heap(const BenchOptions& options) {
  if (!options.in_heap || options.print_plan || options.max_bytes <= kLargestInHeap) return;
  throw UsageError(
      base::str("lockstep bench: the shared heap of a rank has no room for two tensors "
                "of ",
                base::bytes_text(options.max_bytes), ".\n  Use -e ", kLargestInHeap / GiB,
                "G, or --memory ordinary."));
}

}  // namespace

plan::Collective collective_of(Operation operation) {
  switch (operation) {
    case Operation::reduce_scatter:
      return plan::Collective::reduce_scatter;
    case Operation::all_gather:
      return plan::Collective::all_gather;
    case Operation::broadcast:
      return plan::Collective::broadcast;
    case Operation::all_to_all:
      return plan::Collective::all_to_all;
    default:
      return plan::Collective::all_reduce;
  }
}

bool has_a_part_for_each(Operation operation) {
  return operation == Operation::all_gather || operation == Operation::reduce_scatter ||
         operation == Operation::all_to_all;
}

int64_t count_of(const BenchOptions& options, int64_t bytes) {
  const int parts = has_a_part_for_each(options.operation) ? options.ranks : 1;
  return bytes / int64_t{sizeof(float)} / parts;
}

int64_t parse_size(const std::string& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string unit(end, text.data() + text.size());
  static const std::map<std::string, int64_t> units = {
      {"", 1}, {"K", KiB}, {"M", MiB}, {"G", GiB}, {"k", KiB}, {"m", MiB}, {"g", GiB}};
  const auto found = units.find(unit);
  if (error != std::errc() || number < 0 || found == units.end() ||
      number > (int64_t{1} << 50) / found->second) {
    throw UsageError(base::str("\"", text, "\" is no size; write 8, 64K, 64M or 1G."));
  }
  return number * found->second;
}

bool parse_bench(const std::vector<std::string>& args, BenchOptions& options) {
  CLI::App app("Times a collective between ranks of this machine, in nccl-tests' columns.",
               "lockstep bench");
  std::string operation;
  std::string min_bytes = "8";
  std::string max_bytes = "256M";
  std::string step_bytes = "0";
  std::string memory = "heap";
  std::vector<std::string> algorithms;
  int check = 1;
  std::vector<std::string> names;
  for (const auto& [name, value] : operations()) names.push_back(name);
  app.add_option("operation", operation,
                 base::joined(names, " or ") + "; with --tune several, as all_reduce,broadcast");
  add_ranks(app, options.ranks, "ranks")->check(CLI::Range(1, 512));
  const CLI::Option* smallest =
      app.add_option("-b,--minbytes", min_bytes, "smallest size (8; with --tune 256)");
  const CLI::Option* largest =
      app.add_option("-e,--maxbytes", max_bytes, "largest size (256M; with --tune 8M)");
  const CLI::Option* factor = app.add_option("-f,--stepfactor", options.factor,
                                             "from one size to the next (2; with --tune 8)")
                                  ->check(CLI::Range(2, 1 << 20));
  app.add_option("-i,--stepbytes", step_bytes, "add this instead of multiplying");
  app.add_option("--iters", options.iterations, "timed calls a size (20)")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("-w,--warmup_iters", options.warmup, "calls before them (1)")
      ->check(CLI::Range(0, 1'000'000));
  app.add_option("-c,--check", check, "0: results are not checked")->check(CLI::Range(0, 1));
  app.add_option("--engine", options.engines,
                 "shm (default), threads or mpi; or several, as shm,mpi")
      ->delimiter(',')
      ->check(CLI::IsMember({"shm", "threads", "mpi"}));
  app.add_option("--memory", memory, "heap (shared, nothing is copied) or ordinary")
      ->check(CLI::IsMember({"heap", "ordinary"}));
  app.add_option("--algorithm", algorithms,
                 "one or several, as ring,tree; default: direct, in one pass over shared memory")
      ->delimiter(',');
  app.add_option("--ranks-per-host", options.ranks_per_host,
                 "for hierarchical: as if so many ranks shared a host (all)")
      ->check(CLI::Range(1, 512));
  app.add_option("--topology", options.topology,
                 "a topology file: ranks on its hosts, the time of its links (engine threads)");
  app.add_option("--jitter", options.jitter, "with it: messages take up to this part longer (0)")
      ->check(CLI::Range(0.0, 100.0));
  app.add_option("--slow-rank", options.slow_rank, "with it: a rank whose messages take longer")
      ->check(CLI::Range(0, 511));
  app.add_option("--slow-factor", options.slow_factor, "with it: so many times as long (1)")
      ->check(CLI::Range(1.0, 1e6));
  app.add_flag(
      "--plan", options.print_plan,
      "print what every rank sends, receives and adds, for the smallest size; start nothing");
  app.add_flag("--fit", options.fit,
               "latency and bandwidth that explain the times, and what is left");
  app.add_flag("--json", options.json, "one JSON object on stdout at the end");
  app.add_option("--table", options.table_file,
                 "a file that --tune made: by size, the algorithm that was the fastest");
  app.add_option("--tune", options.tune_file,
                 "measure every algorithm that keeps the bits, and write to this file which is the "
                 "fastest");
  const CLI::Option* rounds =
      app.add_option("--rounds", options.rounds, "with --tune: times that all take turns (3)")
          ->check(CLI::Range(1, 1000));
  if (!parse_arguments(app, args)) return false;
  const bool tunes = !options.tune_file.empty();
  if (tunes && smallest->count() == 0) min_bytes = "256";
  if (tunes && largest->count() == 0) max_bytes = "8M";
  if (tunes && factor->count() == 0) options.factor = 8;
  set_operations(options, operation);
  options.min_bytes = parse_size(min_bytes);
  options.max_bytes = parse_size(max_bytes);
  options.step_bytes = parse_size(step_bytes);
  options.in_heap = memory == "heap";
  options.check = check != 0;
  if (!algorithms.empty()) {
    options.algorithms = parse_algorithms(algorithms, options.operation);
  }
  check_flags(options, {.algorithms = !algorithms.empty(), .rounds = rounds->count() > 0});
  check_combination(options);
  check_heap(options);
  if (!options.topology.empty()) options.network = read_network(options);
  options.hosts = hosts_of(options);
  options.by_table = !options.table_file.empty();
  options.by_default = !options.by_table && algorithms.empty();
  if (options.by_table) options.table = followed(options);
  if (tunes) (void)tuned_for(options, options.engines[0]);
  for (const plan::Algorithm algorithm : options.algorithms) {
    // Refuses hosts of unequal sizes.
    if (algorithm == plan::Algorithm::hierarchical) {
      (void)plan::plan_hierarchical_all_reduce(options.hosts, /*count=*/0);
    }
  }
  return true;
}

std::vector<int64_t> bench_sizes(const BenchOptions& options) {
  std::vector<int64_t> sizes;
  int64_t size = options.min_bytes;
  while (size <= options.max_bytes) {
    sizes.push_back(size);
    size = options.step_bytes > 0 ? size + options.step_bytes : size * options.factor;
  }
  return sizes;
}

std::vector<BenchPass> bench_passes(const BenchOptions& options) {
  std::vector<BenchPass> passes;
  if (!options.by_table) {
    for (const plan::Algorithm one : options.algorithms) {
      passes.push_back({one, bench_sizes(options)});
    }
    return passes;
  }
  const int64_t parts = has_a_part_for_each(options.operation) ? options.ranks : 1;
  for (const int64_t size : bench_sizes(options)) {
    const int64_t bytes = count_of(options, size) * parts * int64_t{sizeof(float)};
    const plan::Algorithm chosen = options.table.choose(collective_of(options.operation), bytes);
    if (passes.empty() || passes.back().algorithm != chosen) passes.push_back({chosen, {}});
    passes.back().sizes.push_back(size);
  }
  return passes;
}

bool hosts_are_alike(const BenchOptions& options) {
  return std::all_of(options.hosts.begin(), options.hosts.end(),
                     [&](const auto& host) { return host.size() == options.hosts[0].size(); });
}

plan::TunedFor tuned_for(const BenchOptions& options, const std::string& engine) {
  if (!hosts_are_alike(options)) {
    throw UsageError(
        "lockstep bench: the hosts of the topology file hold unequal numbers of these ranks.\n"
        "  Tables of algorithms are for hosts of as many ranks each: use another -n.");
  }
  return {.engine = engine,
          .ranks = options.ranks,
          .hosts = static_cast<int>(options.hosts.size()),
          .modelled = options.network != nullptr};
}

}  // namespace lockstep::cli
