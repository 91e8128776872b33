/// A trace as a picture: a row a rank, time to the right.
///
///   rank 0   [0][1][2][3]      [ 0 ][ 1 ][ 2 ][ 3 ]    measured
///   planned  [0][1][2][3]     [ 0 ][ 1 ][ 2 ][ 3 ]
///   rank 1      [0][1][2][ 0 ][3][ 1 ][ 2 ][ 3 ]
///
/// Forward is blue, backward green, weight orange, optimizer purple; communication is a grey line
/// below the row, since it goes on beside the computing. Numbers in the boxes are micro-batches.
#pragma once

#include <string>
#include <vector>

#include "lockstep/files/trace_file.h"

namespace lockstep::report {

struct TimelineOptions {
  std::string title = "Timeline";
  /// Pixels of the time axis. More: numbers fit into shorter boxes.
  int width = 1200;
};

/// Complete SVG text, the same for the same events. Measured and planned events start at the same
/// place, each at its first event, and share one scale.
std::string timeline_svg(const std::vector<files::TraceEvent>& events,
                         const TimelineOptions& options = {});

}  // namespace lockstep::report
