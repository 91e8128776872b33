#include <array>
#include <charconv>
#include <cmath>

#include "lockstep/base/number_text.h"
#include "lockstep/base/str.h"
#include "lockstep/report/equivalence.h"

namespace lockstep::report {
namespace {

using Json = nlohmann::json;

/// Reads back to the same number: to the same float, of an element of a tensor.
std::string exact_text(double value, bool is_element) {
  std::array<char, 32> text{};
  char* const end = text.data() + text.size();
  const auto written = is_element ? std::to_chars(text.data(), end, static_cast<float>(value))
                                  : std::to_chars(text.data(), end, value);
  return std::string(text.data(), written.ptr);
}

/// JSON has no word for inf and nan.
Json number_json(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

std::string padded(std::string text, size_t width) {
  text.resize(std::max(text.size(), width), ' ');
  return text;
}

std::string place_of(const Difference& difference) {
  std::string text = difference.kind;
  if (!difference.name.empty()) text += " of " + difference.name;
  std::vector<std::string> where;
  if (difference.layer >= 0) where.push_back(base::str("layer ", difference.layer));
  if (difference.leaf >= 0) where.push_back(base::str("leaf ", difference.leaf));
  if (difference.micro >= 0) where.push_back(base::str("micro-batch ", difference.micro));
  if (!where.empty()) text += " (" + base::joined(where, ", ") + ")";
  if (difference.rank >= 0) text += base::str(" on rank ", difference.rank);
  return text;
}

Json to_json(const Difference& difference) {
  return {{"step", difference.step},
          {"kind", difference.kind},
          {"name", difference.name},
          {"layer", difference.layer},
          {"leaf", difference.leaf},
          {"micro", difference.micro},
          {"rank", difference.rank},
          {"index", difference.index},
          {"layout", number_json(difference.layout)},
          {"alone", number_json(difference.alone)},
          {"difference", number_json(difference.difference)},
          {"bound", number_json(difference.bound)},
          {"text", text_of(difference)}};
}

std::string line_of(const KindResult& kind) {
  if (kind.compared == 0) return base::str("  ", padded(kind.kind, 15), "none\n");
  std::string text = base::str("  ", padded(kind.kind, 15), kind.compared, " compared, ");
  if (kind.unequal == 0) return text + "equal in bits\n";
  text += base::str(kind.unequal, " differ");
  if (kind.largest > 0) {
    text += base::str(", by at most ", base::scientific_text(kind.largest, 1), " of the bound");
  }
  return text + "\n";
}

}  // namespace

const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::equal:
      return "equal";
    case Verdict::within:
      return "within";
    case Verdict::broken:
      return "broken";
  }
  return "";
}

std::string text_of(const Difference& difference, const std::string& other) {
  const std::string text = base::str("step ", difference.step, ": ", place_of(difference));
  if (std::isnan(difference.difference) && difference.bound == 0) {
    return text + ": its digest is another";
  }
  const bool is_element = difference.index >= 0;
  return base::str(text, is_element ? base::str(": element ", difference.index) : "", " is ",
                   exact_text(difference.layout, is_element), ", ", other, " ",
                   exact_text(difference.alone, is_element));
}

std::string text_of(const Equivalence& equivalence) {
  std::string text;
  for (const KindResult& kind : equivalence.kinds) text += line_of(kind);
  if (equivalence.first) {
    text += base::str("first difference: ", text_of(*equivalence.first), "\n");
  }
  if (equivalence.first_beyond &&
      text_of(*equivalence.first_beyond) != text_of(*equivalence.first)) {
    text += base::str("first beyond rounding: ", text_of(*equivalence.first_beyond), "\n");
  }
  constexpr size_t kShown = 3;
  for (size_t i = 0; i < equivalence.missing.size() && i < kShown; ++i) {
    text += base::str("missing: ", equivalence.missing[i], "\n");
  }
  if (equivalence.missing.size() > kShown) {
    text += base::str("missing: ", equivalence.missing.size() - kShown, " more\n");
  }
  return text;
}

Json to_json(const Equivalence& equivalence) {
  Json kinds = Json::array();
  for (const KindResult& kind : equivalence.kinds) {
    kinds.push_back({{"kind", kind.kind},
                     {"compared", kind.compared},
                     {"unequal", kind.unequal},
                     {"beyond", kind.beyond},
                     {"largest_over_bound", number_json(kind.largest)}});
  }
  const auto difference = [](const std::optional<Difference>& one) {
    return one ? to_json(*one) : Json(nullptr);
  };
  return {{"verdict", name_of(equivalence.verdict)},
          {"first_difference", difference(equivalence.first)},
          {"first_beyond_bound", difference(equivalence.first_beyond)},
          {"kinds", kinds},
          {"missing", equivalence.missing}};
}

}  // namespace lockstep::report
