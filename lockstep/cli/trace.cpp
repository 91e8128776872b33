#include "lockstep/cli/trace.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/cli/arguments.h"
#include "lockstep/files/atomic_file.h"
#include "lockstep/files/trace_file.h"
#include "lockstep/report/timeline_svg.h"
#include "lockstep/report/trace_summary.h"

namespace lockstep::cli {
namespace fs = std::filesystem;
namespace {

/// The trace of the run in the folder `run`.
std::string trace_of(const std::string& run) {
  std::error_code error;
  if (!fs::is_directory(run, error)) {
    const std::string in_runs = (fs::path("runs") / run).string();
    throw StateError(base::str(
        "there is no run ", run, ".",
        fs::is_directory(in_runs, error) ? base::str("\n  Did you mean ", in_runs, "?") : ""));
  }
  const std::string file = (fs::path(run) / "trace.json").string();
  if (fs::is_regular_file(file, error)) return file;
  throw StateError(base::str("there is no ", file,
                             ".\n  A run writes it if log.trace_steps says which steps to trace."));
}

bool any(const std::vector<files::TraceEvent>& events, bool planned) {
  return std::any_of(events.begin(), events.end(),
                     [&](const files::TraceEvent& event) { return event.planned == planned; });
}

}  // namespace

int trace_command(const std::vector<std::string>& args) {
  std::string run;
  std::string svg;
  CLI::App app("What each rank of a run did, and when. trace.json itself opens in ui.perfetto.dev.",
               "lockstep trace");
  app.add_option("RUN", run, "a run folder with a trace.json")->required();
  app.add_option("--svg", svg, "where the picture goes (default: RUN/timeline.svg)");
  if (!parse_arguments(app, args)) return 0;

  const std::string trace = trace_of(run);
  const auto events = files::read_trace(trace);
  if (events.empty()) throw StateError(base::str(trace, " holds no event."));
  if (svg.empty()) svg = (fs::path(run) / "timeline.svg").string();
  const std::string name = fs::path(run).lexically_normal().string();
  files::AtomicFile file(svg);
  file.write(report::timeline_svg(events, {.title = name}));
  file.commit();

  for (const bool planned : {false, true}) {
    if (!any(events, planned)) continue;
    std::cout << (planned ? "planned" : "measured") << "\n"
              << report::text_of(report::summarize(events, planned)) << "\n";
  }
  std::cout << svg << "\n";
  return 0;
}

}  // namespace lockstep::cli
