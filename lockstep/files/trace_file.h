/// Timelines in the trace format of Chrome, which Perfetto (ui.perfetto.dev) shows.
///
///   {"traceEvents": [
///   {"ph": "M", "pid": 0, "name": "process_name", "args": {"name": "rank 0"}}, ...
///   {"ph": "X", "pid": 0, "tid": 0, "ts": 12.5, "dur": 3.25, "name": "F0", "cat": "forward"}, ...
///
/// A process is a rank, a thread one of its lanes, times are microseconds to a thousandth. What was
/// planned for a rank is a process of its own, "planned rank 0", below it.
/// Source  "Trace Event Format", the Chromium project
#pragma once

#include <string>
#include <vector>

namespace lockstep::files {

struct TraceEvent {
  int rank = 0;
  std::string lane;      // what happens side by side: "compute", "communication"
  std::string name;      // "F0", "B3.1"
  std::string category;  // forward, backward, weight, communication, optimizer, or another word
  double start = 0;      // seconds, on a clock of all ranks
  double seconds = 0;
  bool planned = false;  // else measured
  bool operator==(const TraceEvent&) const = default;
};

/// Replaces the file as a whole. Throws StateError naming the file and the reason.
void write_trace(const std::string& path, const std::vector<TraceEvent>& events);

/// The events of write_trace, in its order; also those of other writers' complete events ("X"),
/// whose process and thread numbers stand for rank and lane where they have no names. Throws
/// StateError: no such file, not JSON, an event without numbers for its times.
std::vector<TraceEvent> read_trace(const std::string& path);

}  // namespace lockstep::files
