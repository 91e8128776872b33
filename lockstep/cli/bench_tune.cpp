#include "lockstep/cli/bench_tune.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/number_text.h"
#include "lockstep/base/own_program.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/cli/algorithm_file.h"
#include "lockstep/cli/capture.h"
#include "lockstep/files/atomic_file.h"
#include "lockstep/launch/cores.h"
#include "lockstep/launch/rank_process.h"

namespace lockstep::cli {
namespace {

using net::Operation;
using plan::Algorithm;

/// One round of one operation, as the words of a command.
std::vector<std::string> round_command(const BenchOptions& options, const std::string& engine,
                                       Operation operation,
                                       const std::vector<Algorithm>& algorithms) {
  std::string list;
  for (const Algorithm algorithm : algorithms) {
    list += (list.empty() ? "" : ",") + plan::name_of(algorithm);
  }
  std::vector<std::string> words = {
      base::own_program(),
      "bench",
      net::name_of(operation),
      "--json",
      base::str("--ranks=", options.ranks),
      "--engine=" + engine,
      "--algorithm=" + list,
      base::str("--minbytes=", options.min_bytes),
      base::str("--maxbytes=", options.max_bytes),
      base::str("--stepfactor=", options.factor),
      base::str("--stepbytes=", options.step_bytes),
      base::str("--iters=", options.iterations),
      base::str("--warmup_iters=", options.warmup),
      base::str("--check=", options.check ? 1 : 0),
      options.in_heap ? "--memory=heap" : "--memory=ordinary",
  };
  if (options.ranks_per_host > 0) {
    words.push_back(base::str("--ranks-per-host=", options.ranks_per_host));
  }
  if (options.network) {
    words.push_back("--topology=" + options.topology);
    words.push_back("--jitter=" + base::exact(options.jitter));
    words.push_back("--slow-factor=" + base::exact(options.slow_factor));
    if (options.slow_rank >= 0) words.push_back(base::str("--slow-rank=", options.slow_rank));
  }
  return words;
}

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "an unnamed processor";
}

/// For people who wonder whether a table is theirs.
std::string machine_of(const BenchOptions& options) {
  const std::string how = base::str(options.in_heap ? "heap" : "ordinary", " memory, ",
                                    options.rounds, " rounds of ", options.iterations, " calls");
  if (options.network) return base::str("the links of ", options.topology, "; ", how);
  double load = 0;
  getloadavg(&load, 1);
  return base::str(launch::allowed_cores().size(), " cores of ", processor(), ", load ",
                   base::fixed_text(load, 1), "; ", how);
}

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

/// Exit code; the rows of `operation` on success.
int measure_rows(const BenchOptions& options, const std::string& engine, Operation operation,
                 std::vector<plan::TunedRow>& rows) {
  const plan::TunedFor where = tuned_for(options, engine);
  const std::vector<Algorithm> algorithms =
      plan::candidates(collective_of(operation), where.ranks, where.hosts);
  std::vector<nlohmann::json> rounds;
  for (int round = 0; round < options.rounds; ++round) {
    const Captured captured = capture(round_command(options, engine, operation, algorithms),
                                      launch::own_environment(), Errors::passed_on);
    if (captured.exit_code != 0) return captured.exit_code;
    rounds.push_back(nlohmann::json::parse(captured.output));
  }
  rows = plan::rows_of(times_of(rounds));
  return 0;
}

}  // namespace

std::vector<plan::SizeTimes> times_of(const std::vector<nlohmann::json>& rounds) {
  std::map<int64_t, std::map<Algorithm, std::vector<double>>> medians;
  for (const nlohmann::json& round : rounds) {
    for (const nlohmann::json& row : round.at("results")) {
      const auto bytes = row.at("bytes").get<int64_t>();
      const nlohmann::json& times =
          row.at("in_place").is_null() ? row.at("out_of_place") : row.at("in_place");
      if (bytes == 0) continue;
      medians[bytes][plan::parse_algorithm(row.at("algorithm").get<std::string>())].push_back(
          times.at("median_us").get<double>());
    }
  }
  std::vector<plan::SizeTimes> sizes;
  for (const auto& [bytes, by_algorithm] : medians) {
    sizes.push_back({.bytes = bytes, .candidates = {}});
    for (const auto& [algorithm, values] : by_algorithm) {
      const auto [least, most] = std::minmax_element(values.begin(), values.end());
      sizes.back().candidates.push_back({algorithm, median_of(values), *most - *least});
    }
  }
  return sizes;
}

int tune(const BenchOptions& options) {
  // Before a minute of measuring: what is there can be read, and something can be put there.
  (void)read_algorithm_file_if_any(options.tune_file);
  try {
    (void)files::AtomicFile{options.tune_file};
  } catch (const StateError& error) {  // whose code is that of checkpoints
    throw EnvironmentError(error.what());
  }
  for (const std::string& engine : options.engines) {
    plan::TunedSection section{
        .where = tuned_for(options, engine), .machine = machine_of(options), .rows = {}};
    for (const Operation operation : options.tuned_operations) {
      const int code =
          measure_rows(options, engine, operation, section.rows[collective_of(operation)]);
      if (code != 0) return code;
    }
    plan::TunedTable table = read_algorithm_file_if_any(options.tune_file);
    plan::put(table, section);
    write_algorithm_file(options.tune_file, table);
    std::printf("%s, %s:\n  %s\n", options.tune_file.c_str(), plan::text(section.where).c_str(),
                plan::text(plan::rules_of(section)).c_str());
  }
  return 0;
}

}  // namespace lockstep::cli
