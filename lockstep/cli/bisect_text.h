/// What `lockstep bisect` found, for people and for programs.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "lockstep/cli/bisect_search.h"

namespace lockstep::cli {

/// Several lines. The records' values are those of both runs; "A" and "B" as they were given.
std::string text_of(const Bisection& found, const RunRecord& a, const RunRecord& b);
nlohmann::json to_json(const Bisection& found, const RunRecord& a, const RunRecord& b);

std::string text_of(const Reproduction& found, const RunRecord& run);
nlohmann::json to_json(const Reproduction& found, const RunRecord& run);

}  // namespace lockstep::cli
