/// The line that tells how training goes. Pure: figures in, text out, with a decimal point in any
/// locale.
///
///   step 460/600 | loss 1.8077 | grad 1.346 | lr 9.46e-04 | 92 ms | 22,289 tokens/s | MFU 61 % |
///   9.8 MiB | comm 7.4 %, 52 % of it hidden | 0:14 left                          (one line)
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/train/step_report.h"

namespace lockstep {

struct ProgressOptions {
  int64_t steps = 0;            // of the run
  double seconds_left = 0;      // estimated
  int columns = 0;              // of the terminal; 0: as long as it is
  std::string unit = "tokens";  // what StepReport::tokens counts
};

/// Where `columns` are too few, the figures that matter least are left out: first memory and
/// communication, last of all step and loss. Never longer than `columns`.
std::string progress_line(const StepReport& report, const ProgressOptions& options);

}  // namespace lockstep
