/// Pictures in the documents that are printed plans.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/base/str.h"
#include "lockstep/plan/collective_steps.h"

namespace lockstep::plan {

/// The lines of a text up to an empty one, each with its round: "round 0: rank 1 sends ...".
inline std::vector<std::string> lines_with_rounds(std::istream& text) {
  std::vector<std::string> lines;
  std::string round;
  for (std::string line; std::getline(text, line);) {
    line.erase(0, line.find_first_not_of(' '));
    if (line.empty()) break;
    if (line.starts_with("round")) {
      round = line.substr(0, line.find("rank"));
    } else if (line != "...") {
      line = round + line;
    }
    lines.push_back(line);
  }
  return lines;
}

/// Under "    TITLE, N ranks, M elements" the page shows lines of the plan, in order; lines between
/// may be left out, marked by dots or not.
inline void expect_picture(const std::string& page, const CollectivePlan& plan,
                           int64_t elements = 64) {
  const std::string title = base::str(name_of(plan.operation), " ", name_of(plan.algorithm), ", ",
                                      plan.ranks(), " ranks, ", elements, " elements");
  std::ifstream file(std::filesystem::path(__FILE__).parent_path().parent_path().parent_path() /
                     "docs/concepts" / page);
  std::string line;
  while (std::getline(file, line) && line != "    " + title) {
  }
  const auto shown = lines_with_rounds(file);
  ASSERT_FALSE(shown.empty()) << title << " in " << page;
  std::istringstream text(to_text(plan));
  const auto printed = lines_with_rounds(text);
  auto at = printed.begin();
  for (const std::string& wanted : shown) {
    if (wanted == "...") continue;
    at = std::find(at, printed.end(), wanted);
    ASSERT_NE(at, printed.end()) << title << ": " << wanted;
  }
}

}  // namespace lockstep::plan
