#include "lockstep/plan/train_config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <variant>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/plan/detail/config_table.h"

namespace lockstep::plan {
namespace {

using Json = nlohmann::json;
using namespace detail;

template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
// Clang before 17 does not find it by itself.
template <class... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

/// The shortest text that reads back as the same double.
std::string shortest(double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value);
  return std::string(text.data(), end.ptr);
}

std::string range_of(const Row& row) {
  return std::visit(
      Overloaded{
          [](const Whole& w) {
            std::string text = w.hi == std::numeric_limits<int64_t>::max()
                                   ? base::str("a whole number from ", w.lo)
                                   : base::str("a whole number from ", w.lo, " to ", w.hi);
            return w.automatic ? text + " or \"auto\"" : text;
          },
          [](const Real& r) {
            return base::str("a number ", r.above_lo ? "above " : "from ", shortest(r.lo),
                             r.below_hi ? ", below " : " to ", shortest(r.hi));
          },
          [](const Flag&) { return std::string("true or false"); },
          [](const Text& t) {
            return std::string(t.may_be_empty ? "a text" : "a text that is not empty");
          },
          [](const Choice& c) {
            return c.words.size() == 1 ? base::str("\"", c.words[0], "\"")
                                       : "one of " + base::joined(c.words, " or ");
          },
      },
      row.kind);
}

[[noreturn]] void refuse(const Row& row, const std::string& written, const std::string& more = {}) {
  throw UsageError(base::str(row.name, " = ", written, " does not fit (", row.doc,
                             ").\n  It wants ", range_of(row), ".", more));
}

[[noreturn]] void unknown_key(const std::string& key) {
  std::vector<std::string> names;
  std::vector<std::string> sections;
  const size_t dot = key.find('.');
  const std::string section = key.substr(0, dot);
  std::vector<std::string> of_section;
  std::string same_last_part;
  for (const Row& row : config_table()) {
    names.push_back(row.name);
    const size_t at = row.name.find('.');
    if (sections.empty() || sections.back() != row.name.substr(0, at)) {
      sections.push_back(row.name.substr(0, at));
    }
    if (row.name.substr(0, at) == section) of_section.push_back(row.name.substr(at + 1));
    const std::string last = dot == std::string::npos ? key : key.substr(dot + 1);
    if (row.name.substr(at + 1) == last) same_last_part = row.name;
  }
  std::string near = base::nearest(key, names);
  if (near.empty()) near = same_last_part;
  std::string help;
  if (!near.empty()) {
    help = base::str("Did you mean \"", near, "\"?");
  } else if (!of_section.empty()) {
    help = base::str("The keys of [", section, "] are ", base::joined(of_section), ".");
  } else {
    help = base::str("The sections are ", base::joined(sections), ".");
  }
  throw UsageError(base::str("there is no key \"", key, "\".\n  ", help));
}

const Row& row_of(const std::string& key) {
  for (const Row& row : config_table()) {
    if (row.name == key) return row;
  }
  unknown_key(key);
}

// ---- typed values

void assign(TrainConfig& config, const Row& row, const Whole& w, const Json& value) {
  // A number for "auto" counts only where it cannot be taken for one that is meant: -1, not 0.
  if (w.automatic && (value == "auto" || (*w.automatic < 0 && value == *w.automatic))) {
    *w.at(config) = *w.automatic;
    return;
  }
  const bool fits_int64 = value.is_number_integer() &&
                          (!value.is_number_unsigned() ||
                           value.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()});
  if (!fits_int64) refuse(row, value.dump());
  const auto number = value.get<int64_t>();
  if (number < w.lo || number > w.hi) refuse(row, value.dump());
  *w.at(config) = number;
}

void assign(TrainConfig& config, const Row& row, const Real& r, const Json& value) {
  if (!value.is_number()) refuse(row, value.dump());
  const auto number = value.get<double>();
  const bool inside = std::isfinite(number) && (r.above_lo ? number > r.lo : number >= r.lo) &&
                      (r.below_hi ? number < r.hi : number <= r.hi);
  if (!inside) refuse(row, shortest(number));
  *r.at(config) = number;
}

void assign(TrainConfig& config, const Row& row, const Flag& f, const Json& value) {
  if (!value.is_boolean()) refuse(row, value.dump());
  *f.at(config) = value.get<bool>();
}

/// JSON holds Unicode text only, and so does a run folder's config.
bool is_unicode(const Json& text) {
  try {
    return !text.dump().empty();
  } catch (const Json::type_error&) {
    return false;
  }
}

void assign(TrainConfig& config, const Row& row, const Text& t, const Json& value) {
  if (t.or_number && value.is_number()) {
    assign(config, row, t, Json(shortest(value.get<double>())));
    return;
  }
  if (!is_unicode(value)) throw UsageError(row.name + ": the text is not UTF-8");
  if (!value.is_string()) refuse(row, value.dump());
  const auto& text = value.get_ref<const std::string&>();
  if (text.empty() && !t.may_be_empty) refuse(row, value.dump());
  const bool control =
      std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  if (control) refuse(row, value.dump(), " It has no control characters.");
  // A name that wanders off would put the run folder outside run.dir.
  if (row.name == "run.name" &&
      (text.find('/') != std::string::npos || text[0] == '.' || text.size() > 100)) {
    refuse(row, value.dump(), " It has no slash, no leading dot and at most 100 bytes.");
  }
  *t.at(config) = text;
}

void assign(TrainConfig& config, const Row& row, const Choice& c, const Json& value) {
  if (!is_unicode(value)) throw UsageError(row.name + ": the text is not UTF-8");
  if (!value.is_string()) refuse(row, value.dump());
  const auto& word = value.get_ref<const std::string&>();
  if (std::find(c.words.begin(), c.words.end(), word) == c.words.end()) {
    const std::string near = base::nearest(word, c.words);
    refuse(row, value.dump(),
           near.empty() ? std::string() : base::str(" Did you mean \"", near, "\"?"));
  }
  *c.at(config) = word;
}

void assign(TrainConfig& config, const Row& row, const Json& value) {
  std::visit([&](const auto& kind) { assign(config, row, kind, value); }, row.kind);
}

// ---- text

/// Null where the text is no number of the kind.
template <class Number>
Json parsed(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return nullptr;
  return number;
}

/// The typed value that `text` writes.
Json typed(const Row& row, const std::string& text) {
  const auto number_or_refuse = [&](Json value) {
    if (value.is_null()) refuse(row, "\"" + text + "\"");
    return value;
  };
  return std::visit(Overloaded{
                        [&](const Whole& w) {
                          if (w.automatic && text == "auto") return Json("auto");
                          return number_or_refuse(parsed<int64_t>(text));
                        },
                        [&](const Real&) { return number_or_refuse(parsed<double>(text)); },
                        [&](const Flag&) {
                          if (text != "true" && text != "false") refuse(row, "\"" + text + "\"");
                          return Json(text == "true");
                        },
                        [&](const auto&) { return Json(text); },
                    },
                    row.kind);
}

}  // namespace

const std::vector<ConfigKey>& config_keys() {
  static const std::vector<ConfigKey> keys = [] {
    std::vector<ConfigKey> made;
    for (const Row& row : config_table())
      made.push_back({row.name, row.doc + "; " + range_of(row)});
    return made;
  }();
  return keys;
}

void set_key(TrainConfig& config, const std::string& key, const std::string& text) {
  const Row& row = row_of(key);
  assign(config, row, typed(row, text));
}

std::string get_key(const TrainConfig& config, const std::string& key) {
  const Json value = get_value(config, key);
  if (value.is_string()) return value.get<std::string>();
  return value.is_number_float() ? shortest(value.get<double>()) : value.dump();
}

void set_value(TrainConfig& config, const std::string& key, const Json& value) {
  assign(config, row_of(key), value);
}

Json get_value(const TrainConfig& config, const std::string& key) {
  // The table finds members of a changeable config; it does not change them.
  auto& members = const_cast<TrainConfig&>(config);
  return std::visit(Overloaded{
                        [&](const Whole& w) {
                          const int64_t number = *w.at(members);
                          return w.automatic == number ? Json("auto") : Json(number);
                        },
                        [&](const auto& kind) { return Json(*kind.at(members)); },
                    },
                    row_of(key).kind);
}

Json to_json(const TrainConfig& config) {
  Json json = Json::object();
  for (const Row& row : config_table()) {
    const size_t dot = row.name.find('.');
    json[row.name.substr(0, dot)][row.name.substr(dot + 1)] = get_value(config, row.name);
  }
  if (!config.algorithms.rules.empty()) json["algorithms"] = to_json(config.algorithms);
  if (!config.schedule_csv.empty()) json["schedule_csv"] = config.schedule_csv;
  return json;
}

TrainConfig from_json(const Json& json) {
  if (!json.is_object()) throw UsageError("a config is an object of sections");
  TrainConfig config;
  for (const auto& [section, keys] : json.items()) {
    if (section == "algorithms") {
      config.algorithms = algorithm_table_from_json(keys);
      continue;
    }
    if (section == "schedule_csv" && keys.is_string()) {
      config.schedule_csv = keys.get<std::string>();
      continue;
    }
    if (!keys.is_object()) {
      throw UsageError(base::str("\"", section, "\" is no section with keys in it"));
    }
    for (const auto& [key, value] : keys.items()) set_value(config, section + "." + key, value);
  }
  return config;
}

}  // namespace lockstep::plan
