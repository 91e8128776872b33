#include "lockstep/cli/bench_report.h"

#include "lockstep/base/str.h"
#include "lockstep/cli/line_fit.h"
#include "lockstep/plan/algorithm_choice.h"

namespace lockstep::cli {

using net::Operation;

BenchReport::BenchReport(const BenchOptions& options, int ranks)
    : options_(options), ranks_(ranks), to_(options.json ? stderr : stdout) {
  if (!options.topology.empty()) {
    std::fprintf(to_, "# MODELLED: times are those of the links in %s, not of this machine\n",
                 options.topology.c_str());
  }
  say_formulas();
  if (!options.table_file.empty()) {
    const std::string where = plan::text(tuned_for(options, options.engines[0]));
    std::fprintf(to_,
                 options.table.rules.empty() ? "# %s has nothing for %s: built-in rules\n"
                                             : "# algorithms of %s for %s\n",
                 options.table_file.c_str(), where.c_str());
  }
  std::fprintf(to_,
               "# lockstep bench %s: %d ranks, engine %s, %s memory, %d iterations, %d before\n"
               "#\n"
               "#%10s %12s %8s %6s %6s  %-38s  %s\n"
               "#%10s %12s %8s %6s %6s  %9s %8s %8s %8s   %9s %8s %8s %8s\n"
               "#%10s %12s %8s %6s %6s  %9s %8s %8s %8s   %9s %8s %8s %8s\n",
               net::name_of(options.operation), ranks, options.engines[0].c_str(),
               options.in_heap ? "heap" : "ordinary", options.iterations, options.warmup, "", "",
               "", "", "", "out-of-place", "in-place", "size", "count", "type", "redop", "root",
               "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong", "(B)",
               "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)",
               "");
}

void BenchReport::begin(plan::Algorithm algorithm) {
  fitted_bytes_.clear();
  fitted_seconds_.clear();
  std::fprintf(to_, "# algorithm %s\n", plan::name_of(algorithm).c_str());
}

void BenchReport::add(const Measurement& measurement, const Timing& apart, const Timing& in_place) {
  const bool sums = options_.operation == Operation::all_reduce ||
                    options_.operation == Operation::reduce_scatter;
  std::fprintf(to_, " %10lld %12lld %8s %6s %6d  ", static_cast<long long>(measurement.bytes()),
               static_cast<long long>(measurement.count()), "float", sums ? "sum" : "none",
               options_.operation == Operation::broadcast ? kBenchRoot : -1);
  const Timing& done = in_place.available ? in_place : apart;
  nlohmann::json row = {
      {"algorithm", plan::name_of(measurement.algorithm())},
      {"bytes", measurement.bytes()},
      {"count", measurement.count()},
      {"expected_bytes", expected_bytes(options_, measurement.algorithm(), measurement.count())},
      {"counted_bytes", done.counted_bytes},
      {"wrong", options_.check ? nlohmann::json(apart.wrong + in_place.wrong) : nlohmann::json()}};
  if (options_.several_hosts) {
    row["expected_across_bytes"] =
        expected_across(options_, measurement.algorithm(), measurement.count());
    row["across_bytes"] = done.across_bytes;
  }
  row["out_of_place"] = column(measurement.bytes(), apart);
  std::fputs("   ", to_);
  row["in_place"] = column(measurement.bytes(), in_place);
  std::fputs("\n", to_);
  std::fflush(to_);
  rows_.push_back(std::move(row));
  fitted_bytes_.push_back(static_cast<double>(measurement.bytes()));
  fitted_seconds_.push_back(done.median_s);
}

void BenchReport::end(plan::Algorithm algorithm) {
  if (!options_.fit) return;
  const std::optional<LineFit> fit = fit_line(fitted_bytes_, fitted_seconds_);
  if (!fit) {
    std::fprintf(to_, "# fit %s: no line of two sizes or more explains these times\n",
                 plan::name_of(algorithm).c_str());
    return;
  }
  std::fprintf(to_, "# fit %s: %.2f us + bytes / %.2f GB/s; left over:",
               plan::name_of(algorithm).c_str(), 1e6 * fit->alpha_s, 1e-9 / fit->seconds_per_byte);
  for (const double residual : fit->residuals) std::fprintf(to_, " %+.0f%%", 100 * residual);
  std::fprintf(to_, "\n");
  fits_.push_back({{"algorithm", plan::name_of(algorithm)},
                   {"alpha_us", 1e6 * fit->alpha_s},
                   {"gb_per_s", 1e-9 / fit->seconds_per_byte},
                   {"residuals", fit->residuals}});
}

void BenchReport::finish() {
  const double average = columns_ == 0 ? 0 : bus_bandwidth_ / columns_;
  std::fprintf(to_, "# Out of bounds values : %lld %s\n# Avg bus bandwidth    : %g\n#\n",
               static_cast<long long>(wrong_), wrong_ == 0 ? "OK" : "FAILED", average);
  if (options_.json) {
    const nlohmann::json all = {{"operation", net::name_of(options_.operation)},
                                {"ranks", ranks_},
                                {"engine", options_.engines[0]},
                                {"memory", options_.in_heap ? "heap" : "ordinary"},
                                {"modelled", !options_.topology.empty()},
                                {"hosts", options_.several_hosts ? options_.hosts.size() : 1},
                                {"iterations", options_.iterations},
                                {"results", rows_},
                                {"fits", fits_},
                                {"wrong", wrong_},
                                {"avg_bus_bandwidth", average}};
    std::printf("%s\n", all.dump().c_str());
    std::fflush(stdout);
  }
}

void BenchReport::say_formulas() const {
  const plan::Collective operation = collective_of(options_.operation);
  // Other operations have no formula for links of two kinds.
  const bool has_formula = operation == plan::Collective::all_reduce || options_.hosts.size() == 1;
  if (!options_.network || !hosts_are_alike(options_) || !has_formula) return;
  const plan::AlgorithmTable chosen = plan::cheapest_by_size(
      operation, plan::two_levels(options_.network->placement), bench_sizes(options_));
  std::fprintf(to_, "# the fastest that keeps the bits, by the formulas: %s\n",
               plan::text(chosen).c_str());
}

nlohmann::json BenchReport::column(int64_t bytes, const Timing& timing) {
  if (!timing.available) {
    std::fprintf(to_, "%9s %8s %8s %8s", "N/A", "N/A", "N/A", "N/A");
    return nullptr;
  }
  const double algorithm = static_cast<double>(bytes) / timing.mean_s / 1e9;
  const double bus = algorithm * bus_factor(options_.operation, ranks_);
  const std::string wrong = options_.check ? std::to_string(timing.wrong) : std::string("N/A");
  std::fprintf(to_, "%9.2f %8.2f %8.2f %8s", timing.mean_s * 1e6, algorithm, bus, wrong.c_str());
  bus_bandwidth_ += bus;
  ++columns_;
  wrong_ += timing.wrong;
  return {{"time_us", timing.mean_s * 1e6},
          {"min_us", timing.min_s * 1e6},
          {"median_us", timing.median_s * 1e6},
          {"algbw", algorithm},
          {"busbw", bus},
          {"wrong", options_.check ? nlohmann::json(timing.wrong) : nlohmann::json()}};
}

}  // namespace lockstep::cli
