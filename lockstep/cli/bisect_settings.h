/// What two runs' settings differ in, and whether they compute the same thing at all.
#pragma once

#include <string>
#include <vector>

#include "lockstep/cli/bisect_record.h"

namespace lockstep::cli {

/// One row of what the settings of both differ in.
struct SettingDifference {
  std::string key;
  std::string a;
  std::string b;
  bool free = false;  // it changes who computes, not what
};

/// Throws UsageError: tensors, samples a step or sums that have no counterpart in the other run, so
/// that every step differs by what was asked for; names the setting and both values.
void require_comparable(const RunRecord& a, const RunRecord& b);

/// Of the last settings of each, and of those before where a run went on with other ones; not of
/// names, folders, logs and checkpoints. What changes a result comes first.
std::vector<SettingDifference> settings_that_differ(const RunRecord& a, const RunRecord& b);

}  // namespace lockstep::cli
