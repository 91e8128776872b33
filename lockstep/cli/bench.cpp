#include "lockstep/cli/bench.h"

#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/own_program.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/cli/bench_tune.h"
#include "lockstep/cli/capture.h"
#include "lockstep/cli/job.h"
#include "lockstep/cli/machine.h"
#include "lockstep/launch/mpi_start.h"
#include "lockstep/launch/rank_process.h"

namespace lockstep::cli {

using net::Operation;

plan::AlgorithmTable table_of(const BenchOptions& options, plan::Algorithm algorithm) {
  return {.rules = {{collective_of(options.operation), algorithm}}, .hosts = options.hosts};
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
      return plan::plan_all_to_all(algorithm, {counts.size(), counts});
    default:
      if (algorithm != plan::Algorithm::hierarchical) {
        return plan::plan_all_reduce(algorithm, options.ranks, count);
      }
      return plan::plan_hierarchical_all_reduce(options.hosts, count);
  }
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

int bench_one(const std::vector<std::string>& args, const BenchOptions& options) {
  std::vector<std::string> command = {base::own_program(), "bench-rank"};
  command.insert(command.end(), args.begin(), args.end());
  if (options.engines[0] == "mpi") {
    return launch::run_by_mpi(options.ranks, command, launch::FirstStop::ends_them);
  }
  launch::JobOptions job;
  job.command = std::move(command);
  job.ranks = options.ranks;
  job.engine = options.engines[0];
  return run_and_report(job);
}

/// Two tensors a rank, whichever memory they are in.
void require_memory(const BenchOptions& options) {
  const int64_t available = available_memory();
  const int64_t needed = 2 * options.ranks * bench_sizes(options).back();
  if (available < 0 || needed <= available) return;
  throw OutOfMemory(base::str("lockstep bench: two tensors of ",
                              base::bytes_text(bench_sizes(options).back()), " on each of ",
                              options.ranks, " ranks take ", base::bytes_text(needed),
                              ", this machine has ", base::bytes_text(available),
                              " free.\n  Use a smaller -e, or fewer ranks."));
}

int print_plans(const BenchOptions& options) {
  const int64_t count = count_of(options, options.min_bytes);
  BenchOptions smallest = options;
  smallest.max_bytes = options.min_bytes;
  for (const auto& [algorithm, sizes] : bench_passes(smallest)) {
    const plan::CollectivePlan plan = plan_of(options, algorithm, count);
    const int64_t elements = count * (has_a_part_for_each(options.operation) ? options.ranks : 1);
    std::printf("%s %s, %d ranks, %lld elements\n%s\n", net::name_of(options.operation),
                plan::name_of(algorithm).c_str(), options.ranks, static_cast<long long>(elements),
                plan::to_text(plan).c_str());
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
    const Captured captured = capture(command, launch::own_environment(), Errors::passed_on);
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
  if (launch::mpi_here(launch::own_variable)) {  // mpirun -n 4 lockstep bench ... --engine mpi
    if (options.engines == std::vector<std::string>{"mpi"}) return bench_rank_command(args);
    throw UsageError(
        "lockstep bench: an mpirun has started this process, and each of its ranks would be a "
        "benchmark of its own.\n  Use --engine mpi, or start it without mpirun.");
  }
  require_memory(options);
  if (!options.tune_file.empty()) return tune(options);
  return options.engines.size() == 1 ? bench_one(args, options) : bench_side_by_side(args, options);
}

}  // namespace lockstep::cli
