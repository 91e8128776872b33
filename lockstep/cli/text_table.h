/// Rows of words in columns as wide as they need, for people.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// A line a row, each after `indent` spaces. A column whose cells below the first row are all
/// numbers (digits, commas, points, signs) stands to the right.
std::string table_text(const std::vector<std::vector<std::string>>& rows, int indent = 0);

}  // namespace lockstep::cli
