#include "lockstep/plan/synthetic_compute.h"

#include <charconv>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::plan {

SyntheticCompute parse_synthetic(const std::string& text) {
  std::vector<double> values;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    double value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    const bool ends = next == end || (*next == ',' && next + 1 != end);
    if (error != std::errc{} || !ends || !(value >= 0) || value > 60'000 || values.size() == 3) {
      throw UsageError(base::str("run.synthetic_compute = \"", text,
                                 "\": milliseconds of forward, backward and weight, each 0 to "
                                 "60000.\n  This fits: --set run.synthetic_compute=20,20,20"));
    }
    values.push_back(value);
    at = next == end ? end : next + 1;
  }
  if (values.size() == 1) return {values[0], values[0], values[0]};
  if (values.size() == 2) return {values[0], values[1] / 2, values[1] / 2};
  return {values[0], values[1], values[2]};
}

}  // namespace lockstep::plan
