#include "lockstep/optim/param_groups.h"

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/optim/name_pattern.h"

namespace lockstep::optim {
namespace {

/// The index of the first group that fits; as many as there are: none.
size_t group_of(const std::vector<ParamGroup>& groups, const plan::Param& param) {
  size_t group = 0;
  while (group < groups.size() && !name_fits(groups[group].pattern, plan::logical_name(param)))
    ++group;
  return group;
}

}  // namespace

void check_groups(const std::vector<ParamGroup>& groups, const plan::ParamTable& table) {
  std::vector<bool> used(groups.size() + 1);
  for (const plan::Param& param : table.params) {
    if (param.trainable) used[group_of(groups, param)] = true;
  }
  for (size_t g = 0; g < groups.size(); ++g) {
    const ParamGroup& group = groups[g];
    if (!(group.lr_factor >= 0) || !std::isfinite(group.lr_factor)) {
      throw UsageError(base::str("parameter group \"", group.pattern, "\": lr_factor is ",
                                 group.lr_factor, ", but must be 0 or more"));
    }
    if (used[g]) continue;
    throw UsageError(base::str("parameter group \"", group.pattern,
                               "\" has no trained parameter, or those before it took them all.\n"
                               "  Names are paths in the module tree, as \"h.0.mlp.c_fc.weight\"; "
                               "the first pattern that fits counts."));
  }
}

ParamRule rule_of(const std::vector<ParamGroup>& groups, const plan::Param& param) {
  const size_t group = group_of(groups, param);
  if (group == groups.size()) return {.lr_factor = 1, .decay = param.decay};
  return {.lr_factor = groups[group].lr_factor, .decay = groups[group].decay.value_or(param.decay)};
}

}  // namespace lockstep::optim
