/// Steps that a setting names, counted from 1: "5" or "5-7".
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::plan {

struct StepRange {
  int64_t first = 0;  // 0: none
  int64_t last = 0;
  bool holds(int64_t step) const { return first > 0 && step >= first && step <= last; }
};

/// What log.trace_steps says; empty: none. Throws UsageError naming it.
StepRange parse_trace_steps(const std::string& text);

}  // namespace lockstep::plan
