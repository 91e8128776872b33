#include "lockstep/cli/bench.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/own_program.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/cli/arguments.h"
#include "lockstep/cli/capture.h"
#include "lockstep/cli/job.h"
#include "lockstep/cli/topology_file.h"
#include "lockstep/launch/mpi_start.h"

namespace lockstep::cli {
namespace {

using net::Operation;

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

std::shared_ptr<const plan::NetworkModel> network_of(const BenchOptions& options) {
  if (options.topology.empty()) return nullptr;
  auto network = std::make_shared<plan::NetworkModel>();
  network->placement = plan::place_ranks(read_topology(options.topology), options.ranks);
  network->jitter = options.jitter;
  network->slow_rank = options.slow_rank;
  network->slow_factor = options.slow_factor;
  return network;
}

std::vector<std::vector<int>> hosts_of(const BenchOptions& options) {
  if (!options.hosts.empty() && options.ranks_per_host == 0) return options.hosts;
  if (!options.topology.empty() && options.ranks_per_host == 0) {
    std::vector<std::vector<int>> hosts;
    const auto network = network_of(options);
    for (int rank = 0; rank < options.ranks; ++rank) {
      const auto host = static_cast<size_t>(network->placement.seats[rank].host);
      if (hosts.size() <= host) hosts.resize(host + 1);
      hosts[host].push_back(rank);
    }
    return hosts;
  }
  const int each = options.ranks_per_host > 0 ? options.ranks_per_host : options.ranks;
  std::vector<std::vector<int>> hosts;
  for (int rank = 0; rank < options.ranks; ++rank) {
    if (rank % each == 0) hosts.emplace_back();
    hosts.back().push_back(rank);
  }
  return hosts;
}

plan::AlgorithmTable table_of(const BenchOptions& options, plan::Algorithm algorithm) {
  return {.rules = {{collective_of(options.operation), algorithm}}, .hosts = hosts_of(options)};
}

plan::CollectivePlan plan_of(const BenchOptions& options, plan::Algorithm algorithm,
                             int64_t count) {
  const std::vector<int64_t> counts(static_cast<size_t>(options.ranks), count);
  switch (options.operation) {
    case Operation::reduce_scatter:
      return plan::plan_reduce_scatter(algorithm, counts);
    case Operation::all_gather:
      return plan::plan_all_gather(algorithm, counts);
    case Operation::broadcast:
      return plan::plan_broadcast(algorithm, options.ranks, kBenchRoot, count);
    case Operation::all_to_all:
      return plan::plan_all_to_all(
          algorithm == plan::Algorithm::direct ? plan::Algorithm::pairwise : algorithm,
          {counts.size(), counts});
    default:
      if (algorithm != plan::Algorithm::hierarchical) {
        return plan::plan_all_reduce(algorithm, options.ranks, count);
      }
      return plan::plan_hierarchical_all_reduce(hosts_of(options), count);
  }
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
  app.add_option("operation", operation, base::joined(names, " or "))
      ->required()
      ->check(CLI::IsMember(names));
  add_ranks(app, options.ranks, "ranks")->check(CLI::Range(1, 512));
  app.add_option("-b,--minbytes", min_bytes, "smallest size (8)");
  app.add_option("-e,--maxbytes", max_bytes, "largest size (256M)");
  app.add_option("-f,--stepfactor", options.factor, "from one size to the next (2)")
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
  if (!parse_arguments(app, args)) return false;
  options.operation = operations().at(operation);
  options.min_bytes = parse_size(min_bytes);
  options.max_bytes = parse_size(max_bytes);
  options.step_bytes = parse_size(step_bytes);
  options.in_heap = memory == "heap";
  options.check = check != 0;
  if (!algorithms.empty()) {
    options.algorithms = parse_algorithms(algorithms, options.operation);
  }
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
  if (options.min_bytes < 1 || options.min_bytes > options.max_bytes) {
    throw UsageError(base::str("lockstep bench: sizes from ", options.min_bytes, " to ",
                               options.max_bytes,
                               " bytes; -b must be 1 or more, and not above -e."));
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

double bus_factor(Operation operation, int ranks) {
  const double share = static_cast<double>(ranks - 1) / ranks;
  switch (operation) {
    case Operation::all_reduce:
      return 2 * share;
    case Operation::all_gather:
    case Operation::reduce_scatter:
    case Operation::all_to_all:
      return share;
    default:
      return 1;
  }
}

namespace {

/// `args` for one engine, of the several that they name.
std::vector<std::string> with_engine(const std::vector<std::string>& args,
                                     const std::string& engine) {
  std::vector<std::string> words;
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i] == "--engine") {
      ++i;  // and its value
    } else if (!args[i].starts_with("--engine=") && args[i] != "--json") {
      words.push_back(args[i]);
    }
  }
  words.insert(words.end(), {"--engine", engine});
  return words;
}

std::vector<std::string> own_environment() {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) variables.emplace_back(*entry);
  return variables;
}

int bench_one(const std::vector<std::string>& args, const BenchOptions& options) {
  std::vector<std::string> command = {base::own_program(), "bench-rank"};
  command.insert(command.end(), args.begin(), args.end());
  if (options.engines[0] == "mpi") {
    launch::become(launch::mpirun_command(options.ranks, command));
  }
  launch::JobOptions job;
  job.command = std::move(command);
  job.ranks = options.ranks;
  job.engine = options.engines[0];
  return run_and_report(job);
}

int print_plans(const BenchOptions& options) {
  const bool has_a_part_for_each = options.operation == Operation::all_gather ||
                                   options.operation == Operation::reduce_scatter ||
                                   options.operation == Operation::all_to_all;
  const int64_t parts = has_a_part_for_each ? options.ranks : 1;
  const int64_t count = options.min_bytes / int64_t{sizeof(float)} / parts;
  for (const plan::Algorithm algorithm : options.algorithms) {
    std::printf("%s\n", plan::to_text(plan_of(options, algorithm, count)).c_str());
  }
  return 0;
}

/// One after the other; a row of the table has the times of all.
int bench_side_by_side(const std::vector<std::string>& args, const BenchOptions& options) {
  nlohmann::json all = nlohmann::json::array();
  for (const std::string& engine : options.engines) {
    std::vector<std::string> command = {base::own_program(), "bench"};
    const std::vector<std::string> words = with_engine(args, engine);
    command.insert(command.end(), words.begin(), words.end());
    command.emplace_back("--json");
    const Captured captured = capture(command, own_environment(), Errors::passed_on);
    if (captured.exit_code != 0) return captured.exit_code;
    all.push_back(nlohmann::json::parse(captured.output));
  }
  if (options.json) {
    std::printf("%s\n", nlohmann::json{{"engines", all}}.dump().c_str());
    return 0;
  }
  std::printf("# %s, %d ranks; median us a call\n%-18s %12s", net::name_of(options.operation),
              options.ranks, "algorithm", "bytes");
  for (const std::string& engine : options.engines) std::printf(" %12s", engine.c_str());
  std::printf("\n");
  for (size_t row = 0; row < all[0]["results"].size(); ++row) {
    const nlohmann::json& first = all[0]["results"][row];
    std::printf("%-18s %12lld", first["algorithm"].get<std::string>().c_str(),
                static_cast<long long>(first["bytes"].get<int64_t>()));
    for (const nlohmann::json& engine : all) {
      const nlohmann::json& figures = engine["results"][row];
      const char* column = figures["in_place"].is_null() ? "out_of_place" : "in_place";
      std::printf(" %12.2f", figures[column]["median_us"].get<double>());
    }
    std::printf("\n");
  }
  return 0;
}

}  // namespace

int bench_command(const std::vector<std::string>& args) {
  BenchOptions options;
  if (!parse_bench(args, options)) return 0;
  if (options.print_plan) return print_plans(options);
  const bool is_a_rank = options.engines == std::vector<std::string>{"mpi"} &&
                         launch::mpi_here(launch::own_variable).has_value();
  if (is_a_rank) return bench_rank_command(args);  // mpirun -n 4 lockstep bench ... --engine mpi
  return options.engines.size() == 1 ? bench_one(args, options) : bench_side_by_side(args, options);
}

}  // namespace lockstep::cli
