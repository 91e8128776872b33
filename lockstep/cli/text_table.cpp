#include "lockstep/cli/text_table.h"

#include <algorithm>

namespace lockstep::cli {
namespace {

using Rows = std::vector<std::vector<std::string>>;

bool is_number(const std::string& word) {
  return word.find_first_not_of("0123456789,.-+e") == std::string::npos;
}

}  // namespace

std::string table_text(const Rows& rows, int indent) {
  std::vector<size_t> widths;
  std::vector<bool> right;
  for (size_t r = 0; r < rows.size(); ++r) {
    widths.resize(std::max(widths.size(), rows[r].size()), 0);
    right.resize(widths.size(), true);
    for (size_t c = 0; c < rows[r].size(); ++c) {
      widths[c] = std::max(widths[c], rows[r][c].size());
      if (r > 0 || rows.size() == 1) right[c] = right[c] && is_number(rows[r][c]);
    }
  }
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    std::string line(static_cast<size_t>(indent), ' ');
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string space(widths[c] - row[c].size(), ' ');
      line += (c > 0 ? "  " : "") + (right[c] ? space + row[c] : row[c] + space);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace lockstep::cli
