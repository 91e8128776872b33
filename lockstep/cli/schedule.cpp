#include "lockstep/cli/schedule.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <iostream>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/number_text.h"
#include "lockstep/base/str.h"
#include "lockstep/cli/arguments.h"
#include "lockstep/cli/schedule_file.h"
#include "lockstep/files/atomic_file.h"
#include "lockstep/files/pipeline_trace.h"
#include "lockstep/plan/pipeline_check.h"
#include "lockstep/plan/pipeline_csv.h"
#include "lockstep/plan/pipeline_text.h"
#include "lockstep/report/timeline_svg.h"

namespace lockstep::cli {
namespace {

using plan::PipelineSchedule;
using plan::PipelineTimes;
using plan::StageSeconds;

// More steps than anyone reads take minutes to prove and to draw.
constexpr int kMostStages = 512;
constexpr int kMostChunks = 64;
constexpr int kMostMicroBatches = 4096;
constexpr double kMostColumns = 1000;

void require(bool fits, const std::string& flag, const std::string& range) {
  if (!fits) throw UsageError(base::str("lockstep schedule: ", flag, " wants ", range, "."));
}

StageSeconds costs_in(const std::string& text) {
  StageSeconds seconds;
  std::istringstream in(text);
  in.imbue(std::locale::classic());
  char first = 0;
  char second = 0;
  in >> seconds.forward >> first >> seconds.backward >> second >> seconds.weight;
  const bool read = !in.fail() && in.peek() == EOF && first == ',' && second == ',';
  const double least = std::min({seconds.forward, seconds.backward, seconds.weight});
  const double sum = seconds.forward + seconds.backward + seconds.weight;
  require(read && least >= 0 && sum > 0 && sum <= 1e6, "--costs",
          "seconds of forward, backward and weight, not all 0: 1,1,1");
  return seconds;
}

void write(const std::string& path, const std::string& text) {
  files::AtomicFile file(path);
  file.write(text);
  file.commit();
}

std::string percent(double share) { return base::fixed_text(100 * share, 1) + " %"; }

std::string title_of(const PipelineSchedule& schedule) {
  return base::str(
      schedule.name, ": ", schedule.stages, schedule.stages == 1 ? " stage" : " stages",
      schedule.chunks > 1 ? base::str(" of ", schedule.chunks, " chunks") : "", ", ",
      schedule.micro_batches, schedule.micro_batches == 1 ? " micro-batch" : " micro-batches");
}

void print_grid(const PipelineSchedule& schedule, const PipelineTimes& times,
                const StageSeconds& seconds) {
  const double unit = plan::grid_unit(seconds, schedule.chunks, schedule.splits_weight);
  if (unit <= 0 || times.seconds / unit > kMostColumns) {
    std::cout << "These times take too many columns for a grid: --svg draws them.\n\n";
    return;
  }
  std::cout << plan::pipeline_grid(schedule, times, unit) << "a column is " << unit << " s\n\n";
}

void print_stages(const PipelineSchedule& schedule, const PipelineTimes& times) {
  std::cout << "           in flight   weights held    idle inside\n";
  for (int stage = 0; stage < schedule.stages; ++stage) {
    std::cout << std::left << std::setw(10) << base::str("stage ", stage) << std::right
              << std::setw(10) << plan::peak_in_flight(schedule, stage) << std::setw(15)
              << plan::peak_weights_held(schedule, stage) << std::setw(15)
              << percent(times.stages[static_cast<size_t>(stage)].idle_share()) << "\n";
  }
  if (schedule.chunks > 1) std::cout << "counted in chunks, " << schedule.chunks << " a stage\n";
}

void print_bubble(const PipelineSchedule& schedule, const PipelineTimes& times,
                  const StageSeconds& seconds) {
  const auto formula = plan::bubble_formula(schedule, seconds);
  std::cout << "\nstep       " << base::fixed_text(times.seconds, 3) << " s\n"
            << "bubble     " << percent(times.bubble()) << " simulated, "
            << (formula ? percent(*formula) + " by the formula" : "no formula for these numbers")
            << "\n";
}

}  // namespace

int schedule_command(const std::vector<std::string>& args) {
  plan::PipelineOptions options{.schedule = "1f1b", .stages = 4, .chunks = 0, .micro_batches = 8};
  std::string costs = "1,1,1";
  std::string csv;
  std::string svg;
  CLI::App app("A pipeline schedule: what each stage does and when, its bubble, and what it holds.",
               "lockstep schedule");
  app.add_option("--schedule", options.schedule,
                 base::str(base::joined(plan::pipeline_schedules(), " or "), ", or a FILE.csv"))
      ->capture_default_str();
  auto* stages = app.add_option("-p,--stages", options.stages, "stages")->capture_default_str();
  auto* chunks = app.add_option("--chunks", options.chunks,
                                "chunks of a stage (default: the fewest of the schedule)");
  auto* micro_batches =
      app.add_option("-m,--micro-batches", options.micro_batches, "micro-batches of a step")
          ->capture_default_str();
  app.add_option("--costs", costs,
                 "seconds of a stage's forward, its gradients of inputs and those of weights")
      ->capture_default_str();
  const auto* table = app.add_option("--csv", csv, "write the schedule as a table");
  const auto* picture = app.add_option("--svg", svg, "write the timeline as a picture");
  if (!parse_arguments(app, args)) return 0;
  require(table->count() == 0 || !csv.empty(), "--csv", "the name of a file");
  require(picture->count() == 0 || !svg.empty(), "--svg", "the name of a file");
  const StageSeconds seconds = costs_in(costs);

  PipelineSchedule schedule;
  if (options.schedule.ends_with(".csv")) {
    require(stages->count() + chunks->count() + micro_batches->count() == 0, options.schedule,
            "no -p, -m and --chunks: the table has its own");
    schedule = plan::parse_pipeline_csv(read_schedule_table(options.schedule), options.schedule);
  } else {
    require(options.stages >= 1 && options.stages <= kMostStages, "-p",
            base::str("a number from 1 to ", kMostStages));
    require(options.micro_batches >= 1 && options.micro_batches <= kMostMicroBatches, "-m",
            base::str("a number from 1 to ", kMostMicroBatches));
    require(options.chunks >= 0 && options.chunks <= kMostChunks, "--chunks",
            base::str("a number from 1 to ", kMostChunks));
    if (chunks->count() == 0) options.chunks = plan::fewest_chunks(options.schedule);
    schedule = plan::plan_pipeline(options);
  }
  const int buffers = plan::fewest_buffers(schedule);
  plan::check_pipeline(schedule, buffers);
  const PipelineTimes times = plan::simulate(schedule, plan::even_costs(seconds, schedule.chunks));
  if (!csv.empty()) write(csv, plan::pipeline_csv(schedule));
  if (!svg.empty()) {
    write(svg, report::timeline_svg(files::planned_events(schedule, times),
                                    {.title = title_of(schedule)}));
  }

  std::cout << title_of(schedule) << "\n\n";
  print_grid(schedule, times, seconds);
  print_stages(schedule, times);
  print_bubble(schedule, times, seconds);
  std::cout << "proven     messages come in order and no stage waits for ever, if an edge holds "
            << buffers << (buffers == 1 ? " message\n" : " messages\n");
  return 0;
}

}  // namespace lockstep::cli
