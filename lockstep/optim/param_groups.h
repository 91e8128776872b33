/// Parameters with a rate or a decay rule of their own, by name.
///
///   {{.pattern = "*.bias", .lr_factor = 2}, {.pattern = "wte.*", .decay = false}}
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/plan/param_table.h"

namespace lockstep::optim {

struct ParamGroup {
  /// Of the logical parameter's name: `*` stands for any characters, dots too.
  std::string pattern;
  /// Its rate as a multiple of the step's: the group's peak is the schedule's peak times this.
  double lr_factor = 1;
  /// Weight decay; not set: on tensors of two or more dimensions.
  std::optional<bool> decay = {};
};

/// `table` has the parameters of the whole model. Throws UsageError naming the pattern: a rate that
/// is negative or no number; a pattern that no trained parameter has, or only ones that patterns
/// before it took.
void check_groups(const std::vector<ParamGroup>& groups, const plan::ParamTable& table);

struct ParamRule {
  double lr_factor = 1;
  bool decay = false;
};

/// Of the first group whose pattern fits.
ParamRule rule_of(const std::vector<ParamGroup>& groups, const plan::Param& param);

}  // namespace lockstep::optim
