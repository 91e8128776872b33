/// A profile as a person reads it (a table) and as a program does (profile.json).
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "lockstep/torch_inside/layer_profile.h"

namespace lockstep {

struct Profile {
  std::vector<torch_inside::ProfileRow> rows;  // their seconds add up to `seconds`
  int64_t steps = 0;
  double seconds = 0;           // of these steps, rank 0
  double flops_per_second = 0;  // the measured peak of a rank
};

/// One line a module, with forward and backward side by side, then the other parts of the step. All
/// figures are a step's mean.
std::string profile_table(const Profile& profile);

/// {"steps", "seconds", "peak_flops_per_second", "flops", "residual_seconds",
///  "rows": [{"module", "phase", "seconds", "share", "flops", "bytes_read", "bytes_written",
///  "calls"}]}: sums over the steps; the row of phase "other" is the residual.
nlohmann::json profile_json(const Profile& profile);

/// profile.json in `folder`. Throws StateError.
void write_profile(const std::string& folder, const Profile& profile);

}  // namespace lockstep
