// Slurm's short forms of lists.

#include <charconv>
#include <cstdio>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/launch/place.h"

namespace lockstep::launch {
namespace {

constexpr int64_t kMostHosts = 1 << 20;

[[noreturn]] void refuse(const std::string& variable, const std::string& text,
                         const std::string& form) {
  throw EnvironmentError(base::str(variable, "=\"", text, "\" is no list of Slurm's form ", form,
                                   ".\n  Is it set by hand? srun sets it itself."));
}

/// `text` cut at the commas that stand outside brackets.
std::vector<std::string> cut_at_commas(const std::string& text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : text) {
    if (c == '[') ++depth;
    if (c == ']') --depth;
    if (c == ',' && depth == 0) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

/// Digits only: no sign, no space.
bool read_number(const std::string& digits, int64_t highest, int64_t& number) {
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos) return false;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return result.ec == std::errc() && number <= highest;
}

std::string padded(int64_t number, size_t width) {
  std::string digits = std::to_string(number);
  if (digits.size() < width) digits.insert(0, width - digits.size(), '0');
  return digits;
}

/// "7-10,12" -> 7 8 9 10 12, as wide as they are written. False: it is none.
bool expand_numbers(const std::string& ranges, std::vector<std::string>& numbers) {
  for (const std::string& range : cut_at_commas(ranges)) {
    const size_t dash = range.find('-');
    const std::string low = range.substr(0, dash);
    const std::string high = dash == std::string::npos ? low : range.substr(dash + 1);
    int64_t first = 0;
    int64_t last = 0;
    if (!read_number(low, INT64_MAX / 2, first) || !read_number(high, INT64_MAX / 2, last) ||
        last < first || last - first >= kMostHosts) {
      return false;
    }
    for (int64_t n = first; n <= last; ++n) numbers.push_back(padded(n, low.size()));
  }
  return true;
}

/// All names that `pattern` stands for. False: it is malformed.
bool expand_host(const std::string& pattern, std::vector<std::string>& hosts) {
  std::vector<std::string> names = {""};
  size_t at = 0;
  while (at < pattern.size()) {
    const size_t open = pattern.find('[', at);
    const std::string plain = pattern.substr(at, open == std::string::npos ? open : open - at);
    if (plain.find(']') != std::string::npos) return false;
    std::vector<std::string> numbers = {""};
    at = pattern.size();
    if (open != std::string::npos) {
      const size_t close = pattern.find(']', open);
      if (close == std::string::npos) return false;
      numbers.clear();
      if (!expand_numbers(pattern.substr(open + 1, close - open - 1), numbers)) return false;
      at = close + 1;
    }
    if (static_cast<int64_t>(names.size() * numbers.size()) > kMostHosts) return false;
    std::vector<std::string> longer;
    for (const std::string& name : names) {
      for (const std::string& number : numbers) longer.push_back(name + plain + number);
    }
    names = std::move(longer);
  }
  hosts.insert(hosts.end(), names.begin(), names.end());
  return !pattern.empty();
}

}  // namespace

std::vector<int> slurm_counts(const std::string& variable, const std::string& text) {
  const char* form = "2(x3),1";
  std::vector<int> counts;
  for (const std::string& part : cut_at_commas(text)) {
    const size_t open = part.find("(x");
    int64_t count = 0;
    int64_t times = 1;
    const bool repeated = open != std::string::npos;
    if (!read_number(part.substr(0, open), kMostHosts, count) ||
        (repeated &&
         (!part.ends_with(')') ||
          !read_number(part.substr(open + 2, part.size() - open - 3), kMostHosts, times))) ||
        static_cast<int64_t>(counts.size()) + times > kMostHosts) {
      refuse(variable, text, form);
    }
    counts.insert(counts.end(), static_cast<size_t>(times), static_cast<int>(count));
  }
  return counts;
}

std::vector<std::string> slurm_hosts(const std::string& variable, const std::string& text) {
  std::vector<std::string> hosts;
  for (const std::string& part : cut_at_commas(text)) {
    if (!expand_host(part, hosts)) refuse(variable, text, "node[7-10,12]");
  }
  return hosts;
}

}  // namespace lockstep::launch
