/// Times slept in the place of computing: what run.synthetic_compute says.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::plan {

/// Milliseconds of one micro-batch on one piece of the model.
struct SyntheticCompute {
  static constexpr int64_t kWidth = 16;  // elements of a sample that stages hand on
  double forward = 0;
  double backward = 0;  // of the input
  double weight = 0;    // where a schedule does not split it off, backward takes both
};

/// "20,20,20", "20,40" (backward with weights, halved) or "20" (a backward of twice that). Throws
/// UsageError naming run.synthetic_compute.
SyntheticCompute parse_synthetic(const std::string& text);

}  // namespace lockstep::plan
