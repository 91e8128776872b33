#include "lockstep/plan/step_range.h"

#include <charconv>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::plan {

StepRange parse_trace_steps(const std::string& text) {
  if (text.empty()) return {};
  int64_t first = 0;
  const char* const end = text.data() + text.size();
  auto [at, error] = std::from_chars(text.data(), end, first);
  int64_t last = first;
  if (error == std::errc{} && at != end && *at == '-') {
    const auto rest = std::from_chars(at + 1, end, last);
    at = rest.ptr;
    error = rest.ec;
  }
  if (error == std::errc{} && at == end && first >= 1 && last >= first) return {first, last};
  throw UsageError(base::str("log.trace_steps = \"", text,
                             "\" is no step and no range of steps.\n  Steps count from 1: \"5\" "
                             "or \"5-7\" fit."));
}

}  // namespace lockstep::plan
