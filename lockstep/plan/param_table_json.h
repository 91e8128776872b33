/// A parameter table as JSON: what ranks tell each other about their parts of a model, and what a
/// file of such parts says about itself. What is as it mostly is, is left out.
///
///   [{"name": "wte.g1", "shape": [32, 8], "init": ["normal", 0.02],
///     "slice": {"of": "wte", "shape": [61, 8], "dim": 0, "blocks": [64], "grain": 1, "grains":
///     2}}]
#pragma once

#include <nlohmann/json.hpp>

#include "lockstep/plan/param_table.h"

namespace lockstep::plan {

nlohmann::json to_json(const ParamTable& table);

/// Throws UsageError, naming the parameter: a field that is missing or of another kind, a name
/// twice, a shape that is no count of elements, a slice that does not give its tensor's shape.
ParamTable param_table_from_json(const nlohmann::json& json);

}  // namespace lockstep::plan
