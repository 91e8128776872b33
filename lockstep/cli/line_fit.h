/// Latency and bandwidth of measured times: t = alpha + bytes / beta.
///
/// Least squares of the relative errors: a microsecond counts as much at 8 bytes as a millisecond
/// at 64 MiB.
/// Source  Hockney 1994, Parallel Computing 20(3)
#pragma once

#include <optional>
#include <vector>

namespace lockstep::cli {

struct LineFit {
  double alpha_s = 0;
  double seconds_per_byte = 0;
  std::vector<double> residuals;  // (measured - fitted) / measured, one a point
};

/// Nothing for fewer than two sizes, a time that is not positive, or times that fall with the
/// bytes, which no line explains.
std::optional<LineFit> fit_line(const std::vector<double>& bytes,
                                const std::vector<double>& seconds);

}  // namespace lockstep::cli
