/// Messages are built from pieces: `base::str("rank ", 3, " of ", 8)`. (GCC 12 has no <format>.)
#pragma once

#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::base {

template <class... Pieces>
std::string str(const Pieces&... pieces) {
  std::ostringstream out;
  (out << ... << pieces);
  return std::move(out).str();
}

/// "a, b and c" of `words`; `last` joins the final two.
std::string joined(const std::vector<std::string>& words, std::string_view last = " and ");

/// The word of `candidates` with the smallest edit distance to `word`; empty if none is near enough
/// to be a likely slip (more than a third of the letters differ).
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace lockstep::base
