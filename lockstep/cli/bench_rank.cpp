// The part of `lockstep bench` that runs on every rank.
#include <cstdlib>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/cli/bench_report.h"
#include "lockstep/launch/mpi_start.h"
#include "lockstep/launch/region_handover.h"
#include "lockstep/net/world.h"

namespace lockstep::cli {
namespace {

using net::Group;

constexpr int kWrongResults = 8;  // exit code

/// Measures all sizes; returns the exit code.
int measure(const std::shared_ptr<Group>& world, const BenchOptions& options) {
  std::unique_ptr<BenchReport> report;
  if (world->rank() == 0) report = std::make_unique<BenchReport>(options, world->size());
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
