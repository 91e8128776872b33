// The part of `lockstep bench` that runs on every rank.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/cli/bench.h"
#include "lockstep/cli/line_fit.h"
#include "lockstep/launch/mpi_start.h"
#include "lockstep/launch/region_handover.h"
#include "lockstep/net/world.h"
#include "lockstep/plan/algorithm_choice.h"

namespace lockstep::cli {
namespace {

using net::DType;
using net::Group;
using net::Operation;

constexpr int kWrongResults = 8;  // exit code

/// A tensor of floats, in the heap or not.
class Tensor {
 public:
  Tensor(Group& group, int64_t count, bool in_heap) : count_(count) {
    const int64_t bytes = std::max<int64_t>(count, 1) * int64_t{sizeof(float)};
    if (in_heap) {
      block_ = group.allocate(bytes).memory;
    } else {
      const int64_t rounded = (bytes + 2 * MiB - 1) / (2 * MiB) * (2 * MiB);
      block_.reset(std::aligned_alloc(2 * MiB, static_cast<size_t>(rounded)), std::free);
      if (!block_) throw OutOfMemory(base::str("no ", base::bytes_text(bytes), " for a tensor"));
    }
  }
  float* data() const { return static_cast<float*>(block_.get()); }
  int64_t count() const { return count_; }

 private:
  int64_t count_;
  std::shared_ptr<void> block_;
};

/// What rank `rank` holds in element `i` before call `turn`: small whole numbers, so that sums are
/// exact, and others in each call, so that a call which does nothing is found out.
float value(int rank, int64_t turn, int64_t i) {
  return static_cast<float>((3 * i + 5 * rank + turn) & 127);
}

void fill(float* data, int64_t count, int rank, int64_t turn, int64_t first = 0) {
  for (int64_t i = 0; i < count; ++i) data[i] = value(rank, turn, first + i);
}

struct Timing {
  bool available = false;  // the operation has this form
  double mean_s = 0;
  double min_s = 0;
  double median_s = 0;
  int64_t wrong = 0;
  int64_t counted_bytes = 0;  // of a call, by all ranks together
  int64_t across_bytes = 0;   // of them, those that came from another host
};

/// Of a call, by all ranks together: what their ledgers should count.
int64_t expected_bytes(const BenchOptions& options, plan::Algorithm algorithm, int64_t count) {
  constexpr int64_t kWidth = sizeof(float);
  const bool one_pass = algorithm == plan::Algorithm::direct && options.engines[0] != "mpi" &&
                        options.topology.empty();
  const plan::CollectivePlan plan = plan_of(options, algorithm, count);
  int64_t bytes = 0;
  for (int rank = 0; rank < options.ranks; ++rank) {
    // An all-reduce in one pass is shorter where its terms fit into their announcements.
    bytes += one_pass && options.operation == Operation::all_reduce
                 ? plan::all_reduce_bytes(plan.terms, rank, count, kWidth)
                 : plan::bytes_sent(plan, rank, kWidth);
  }
  return bytes;
}

/// Of them, those that leave a host.
int64_t expected_across(const BenchOptions& options, plan::Algorithm algorithm, int64_t count) {
  std::vector<int> host_of_rank(static_cast<size_t>(options.ranks));
  for (size_t host = 0; host < options.hosts.size(); ++host) {
    for (const int rank : options.hosts[host]) {
      host_of_rank[static_cast<size_t>(rank)] = static_cast<int>(host);
    }
  }
  const std::vector<int64_t> by_host =
      plan::bytes_over_uplink(plan_of(options, algorithm, count), host_of_rank, sizeof(float));
  return std::accumulate(by_host.begin(), by_host.end(), int64_t{0});
}

/// One size of one operation.
class Measurement {
 public:
  Measurement(Group& group, const BenchOptions& options, plan::Algorithm algorithm, int64_t bytes)
      : group_(group),
        options_(options),
        algorithm_(algorithm),
        n_(group.size()),
        count_(count_of(options, bytes)),
        counts_(static_cast<size_t>(n_), count_),
        a_(group, count_ * (has_a_part_for_each(options.operation) ? n_ : 1), options.in_heap),
        b_(group, a_.count(), options.in_heap) {}

  plan::Algorithm algorithm() const { return algorithm_; }
  int64_t count() const { return count_; }
  int64_t bytes() const { return a_.count() * int64_t{sizeof(float)}; }

  Timing run(bool in_place) {
    Timing timing;
    timing.available = options_.operation == Operation::broadcast    ? in_place
                       : options_.operation == Operation::all_to_all ? !in_place
                                                                     : true;
    if (!timing.available) return timing;
    std::vector<double> seconds;
    std::array<int64_t, 2> moved{};  // in all, and across
    for (int i = -options_.warmup; i < options_.iterations; ++i) {
      ++turn_;
      write_input(in_place);
      group_.barrier();
      group_.restart_modelled_clock();
      const net::LedgerEntry before = entry();
      const auto start = std::chrono::steady_clock::now();
      call(in_place);
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
      moved[0] += entry().bytes - before.bytes;
      moved[1] += entry().across - before.across;
      if (i < 0) continue;
      seconds.push_back(options_.topology.empty() ? taken.count() : group_.modelled_seconds());
    }
    group_.all_reduce(moved.data(), std::ssize(moved), DType::i64);
    timing.counted_bytes = moved[0] / (options_.warmup + options_.iterations);
    timing.across_bytes = moved[1] / (options_.warmup + options_.iterations);
    group_.all_reduce(seconds.data(), static_cast<int64_t>(seconds.size()), DType::f64,
                      net::ReduceOp::max);
    timing.mean_s =
        std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(seconds.size());
    std::sort(seconds.begin(), seconds.end());
    timing.min_s = seconds.front();
    timing.median_s = seconds[seconds.size() / 2];
    if (options_.check) {
      timing.wrong = count_wrong(in_place);
      group_.all_reduce(&timing.wrong, 1, DType::i64);
    }
    return timing;
  }

 private:
  int64_t own_start() const { return group_.rank() * count_; }

  net::LedgerEntry entry() const { return group_.ledger()[options_.operation]; }

  void write_input(bool in_place) {
    if (options_.operation == Operation::all_gather) {
      fill(in_place ? b_.data() + own_start() : a_.data(), count_, group_.rank(), turn_);
    } else {
      fill(a_.data(), a_.count(), group_.rank(), turn_);
    }
  }

  void call(bool in_place) {
    float* const a = a_.data();
    float* const b = b_.data();
    switch (options_.operation) {
      case Operation::all_reduce:
        if (in_place) {
          group_.all_reduce(a, count_, DType::f32);
        } else {
          const net::Term term{{group_.rank(), group_.rank() + 1}, a};
          group_.all_reduce_terms(std::span(&term, 1), n_, b, count_, DType::f32);
        }
        break;
      case Operation::reduce_scatter:
        group_.reduce_scatter(a, in_place ? a + own_start() : b, counts_, DType::f32);
        break;
      case Operation::all_gather:
        group_.all_gather(in_place ? b + own_start() : a, b, counts_, DType::f32);
        break;
      case Operation::broadcast:
        group_.broadcast(a, count_, DType::f32, kBenchRoot);
        break;
      default:
        group_.all_to_all(a, counts_, b, counts_, DType::f32);
        break;
    }
  }

  int64_t count_wrong(bool in_place) const {
    const float* a = a_.data();
    const float* b = b_.data();
    const auto sum = [&](int64_t i) {
      float total = 0;
      for (int r = 0; r < n_; ++r) total += value(r, turn_, i);
      return total;
    };
    const auto differ = [](const float* data, int64_t count,
                           const std::function<float(int64_t)>& wanted) {
      int64_t wrong = 0;
      for (int64_t i = 0; i < count; ++i) wrong += data[i] != wanted(i) ? 1 : 0;
      return wrong;
    };
    int64_t wrong = 0;
    switch (options_.operation) {
      case Operation::all_reduce:
        return differ(in_place ? a : b, count_, sum);
      case Operation::reduce_scatter:
        return differ(in_place ? a + own_start() : b, count_,
                      [&](int64_t i) { return sum(own_start() + i); });
      case Operation::all_gather:
        for (int r = 0; r < n_; ++r) {
          wrong += differ(b + r * count_, count_, [&](int64_t i) { return value(r, turn_, i); });
        }
        return wrong;
      case Operation::broadcast:
        return differ(a, count_, [&](int64_t i) { return value(kBenchRoot, turn_, i); });
      default:
        for (int r = 0; r < n_; ++r) {
          wrong += differ(b + r * count_, count_,
                          [&](int64_t i) { return value(r, turn_, own_start() + i); });
        }
        return wrong;
    }
  }

  Group& group_;
  const BenchOptions& options_;
  const plan::Algorithm algorithm_;
  const int n_;
  const int64_t count_;  // elements, as nccl-tests counts them
  const std::vector<int64_t> counts_;
  Tensor a_;
  Tensor b_;
  int64_t turn_ = 0;
};

/// The table of rank 0.
class Report {
 public:
  Report(const BenchOptions& options, int ranks)
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
                 "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)",
                 "(GB/s)", "");
  }

  /// The rows that follow are of that algorithm.
  void begin(plan::Algorithm algorithm) {
    fitted_bytes_.clear();
    fitted_seconds_.clear();
    std::fprintf(to_, "# algorithm %s\n", plan::name_of(algorithm).c_str());
  }

  void add(const Measurement& measurement, const Timing& apart, const Timing& in_place) {
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
        {"wrong",
         options_.check ? nlohmann::json(apart.wrong + in_place.wrong) : nlohmann::json()}};
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

  /// No more rows of that algorithm come.
  void end(plan::Algorithm algorithm) {
    if (!options_.fit) return;
    const std::optional<LineFit> fit = fit_line(fitted_bytes_, fitted_seconds_);
    if (!fit) {
      std::fprintf(to_, "# fit %s: no line of two sizes or more explains these times\n",
                   plan::name_of(algorithm).c_str());
      return;
    }
    std::fprintf(
        to_, "# fit %s: %.2f us + bytes / %.2f GB/s; left over:", plan::name_of(algorithm).c_str(),
        1e6 * fit->alpha_s, 1e-9 / fit->seconds_per_byte);
    for (const double residual : fit->residuals) std::fprintf(to_, " %+.0f%%", 100 * residual);
    std::fprintf(to_, "\n");
    fits_.push_back({{"algorithm", plan::name_of(algorithm)},
                     {"alpha_us", 1e6 * fit->alpha_s},
                     {"gb_per_s", 1e-9 / fit->seconds_per_byte},
                     {"residuals", fit->residuals}});
  }

  void finish() {
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

 private:
  /// Of a network that is not there: which algorithm should be the fastest.
  void say_formulas() const {
    const plan::Collective operation = collective_of(options_.operation);
    // Other operations have no formula for links of two kinds.
    const bool has_formula =
        operation == plan::Collective::all_reduce || options_.hosts.size() == 1;
    if (!options_.network || !hosts_are_alike(options_) || !has_formula) return;
    const plan::AlgorithmTable chosen = plan::cheapest_by_size(
        operation, plan::two_levels(options_.network->placement), bench_sizes(options_));
    std::fprintf(to_, "# the fastest that keeps the bits, by the formulas: %s\n",
                 plan::text(chosen).c_str());
  }

  nlohmann::json column(int64_t bytes, const Timing& timing) {
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

  const BenchOptions& options_;
  const int ranks_;
  std::FILE* const to_;
  nlohmann::json rows_ = nlohmann::json::array();
  nlohmann::json fits_ = nlohmann::json::array();
  std::vector<double> fitted_bytes_;    // of the algorithm under way
  std::vector<double> fitted_seconds_;  // medians of its rows, in place where there are such
  int64_t wrong_ = 0;
  double bus_bandwidth_ = 0;
  int columns_ = 0;
};

/// Measures all sizes; returns the exit code.
int measure(const std::shared_ptr<Group>& world, const BenchOptions& options) {
  std::unique_ptr<Report> report;
  if (world->rank() == 0) report = std::make_unique<Report>(options, world->size());
  int64_t wrong = 0;
  for (const auto& [algorithm, sizes] : bench_passes(options)) {
    if (report) report->begin(algorithm);
    world->set_algorithms(table_of(options, algorithm));
    for (const int64_t bytes : sizes) {
      Measurement measurement(*world, options, algorithm, bytes);
      const Timing apart = measurement.run(/*in_place=*/false);
      const Timing in_place = measurement.run(/*in_place=*/true);
      wrong += apart.wrong + in_place.wrong;
      if (report) report->add(measurement, apart, in_place);
    }
    if (report) report->end(algorithm);
  }
  if (report) report->finish();
  return wrong == 0 ? 0 : kWrongResults;
}

double number_of(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) {
    throw UsageError(base::str(name, " is not set: `lockstep bench` starts bench-rank itself."));
  }
  return std::strtod(text, nullptr);
}

/// Joins the ranks that our launcher started, or an mpirun.
std::shared_ptr<net::Endpoint> join(const BenchOptions& options) {
  net::EndpointOptions endpoint;
  if (options.engines[0] == "mpi") {
    const launch::Place place = launch::place_from(launch::own_variable);
    if (options.ranks != place.world_size) {
      throw UsageError(base::str("lockstep bench: -n ", options.ranks, ", but ",
                                 launch::name_of(place.launcher), " has started ", place.world_size,
                                 " ranks."));
    }
    const auto handover = launch::handover_options(place, endpoint.timeout);
    const launch::Received received =
        place.local_rank == 0 ? launch::hand_out(handover, net::Region::create(place.world_size))
                              : launch::take_over(handover);
    endpoint.oversubscribed = received.oversubscribed;
    if (place.world_size > 1) {
      endpoint.engine = net::load_mpi_engine(launch::require_mpi_here(launch::own_variable));
    }
    return net::Endpoint::join(received.region, place.rank, /*direct_memory=*/false, endpoint);
  }
  endpoint.timeout =
      std::chrono::milliseconds(static_cast<int64_t>(number_of("LOCKSTEP_TIMEOUT_S") * 1000));
  endpoint.oversubscribed = number_of("LOCKSTEP_OVERSUBSCRIBED") != 0;
  const auto region = net::Region::attach(static_cast<int>(number_of("LOCKSTEP_REGION_FD")));
  return net::Endpoint::join(region, static_cast<int>(number_of("LOCKSTEP_RANK")),
                             /*direct_memory=*/false, endpoint);
}

int bench_on_threads(const BenchOptions& options) {
  int code = 0;
  net::run_on_threads(
      options.ranks,
      [&](const std::shared_ptr<Group>& world) {
        const int mine = measure(world, options);
        if (world->rank() == 0) code = mine;
      },
      {.oversubscribed = number_of("LOCKSTEP_OVERSUBSCRIBED") != 0, .network = options.network});
  return code;
}

}  // namespace

int bench_rank_command(const std::vector<std::string>& args) {
  BenchOptions options;
  if (!parse_bench(args, options)) return 0;
  if (options.engines[0] == "threads") return bench_on_threads(options);
  const std::shared_ptr<net::Endpoint> endpoint = join(options);
  try {
    const auto hosts = endpoint->world()->hosts();
    options.several_hosts = hosts.size() > 1;
    if (options.several_hosts && options.ranks_per_host > 0) {
      throw UsageError(
          "lockstep bench: the ranks are on several hosts: leave --ranks-per-host out.");
    }
    if (options.several_hosts) options.hosts = hosts;
    if (options.several_hosts && options.by_default) {
      options.table = endpoint->world()->algorithms();
      options.by_table = true;
    }
    const int code = measure(endpoint->world(), options);
    if (code != 0) {
      endpoint->fail("results of the collective are wrong", code);
    } else {
      endpoint->finish();
    }
    return code;
  } catch (const Error& error) {
    endpoint->fail(error.what(), error.exit_code());
    return error.exit_code();
  }
}

}  // namespace lockstep::cli
