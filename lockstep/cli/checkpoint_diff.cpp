#include "lockstep/cli/checkpoint_diff.h"

#include <charconv>
#include <cmath>
#include <iostream>

#include <nlohmann/json.hpp>

#include "lockstep/base/number_text.h"
#include "lockstep/base/units.h"
#include "lockstep/checkpoint/diff.h"
#include "lockstep/cli/arguments.h"
#include "lockstep/cli/text_table.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::ordered_json;
using Rows = std::vector<std::vector<std::string>>;

std::string number_text(double value) {
  return std::isfinite(value) ? base::scientific_text(value, 2) : "inf";
}

/// As few digits as read back to the same value.
std::string shortest_text(float value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return {text, end};
}

/// JSON has no infinity.
Json number_json(double value) { return std::isfinite(value) ? Json(value) : Json("inf"); }

Json json_of(const checkpoints::Difference& found) {
  const auto others = [](const std::vector<checkpoints::OtherDifference>& differences) {
    Json json = Json::array();
    for (const auto& other : differences) {
      json.push_back({{"what", other.what}, {"a", other.a}, {"b", other.b}});
    }
    return json;
  };
  Json tensors = Json::array();
  for (const checkpoints::TensorDifference& tensor : found.tensors) {
    tensors.push_back({{"kind", tensor.kind},
                       {"name", tensor.name},
                       {"elements", tensor.elements},
                       {"of", tensor.numel},
                       {"largest_absolute", number_json(tensor.largest_absolute)},
                       {"largest_relative", number_json(tensor.largest_relative)},
                       {"first", tensor.first},
                       {"first_a", number_json(tensor.first_a)},
                       {"first_b", number_json(tensor.first_b)}});
  }
  return {{"equal", found.equal()},
          {"a", found.path_a},
          {"b", found.path_b},
          {"compared_tensors", found.compared_tensors},
          {"compared_elements", found.compared_elements},
          {"tensors", tensors},
          {"shapes", others(found.shapes)},
          {"state", others(found.state)},
          {"settings", others(found.settings)}};
}

void print_others(const char* title, const std::vector<checkpoints::OtherDifference>& differences) {
  if (differences.empty()) return;
  Rows rows = {{title, "A", "B"}};
  for (const auto& other : differences) {
    rows.push_back({other.what, other.a.empty() ? "-" : other.a, other.b.empty() ? "-" : other.b});
  }
  std::cout << "\n" << table_text(rows);
}

void print_difference(const checkpoints::Difference& found) {
  std::cout << "A  " << found.path_a << " (" << found.kind_a << ")\n"
            << "B  " << found.path_b << " (" << found.kind_b << ")\n";
  if (!found.tensors.empty()) {
    Rows rows = {{"kind", "tensor", "differ", "of", "largest", "relative", "first", "A", "B"}};
    for (const checkpoints::TensorDifference& tensor : found.tensors) {
      rows.push_back({tensor.kind, tensor.name, base::with_commas(tensor.elements),
                      base::with_commas(tensor.numel), number_text(tensor.largest_absolute),
                      number_text(tensor.largest_relative), std::to_string(tensor.first),
                      shortest_text(tensor.first_a), shortest_text(tensor.first_b)});
    }
    std::cout << "\n" << table_text(rows);
  }
  print_others("shape", found.shapes);
  print_others("state", found.state);
  print_others("setting", found.settings);
  std::cout << "\n"
            << (found.equal() ? "equal: " : "different: ") << found.tensors.size() << " of "
            << found.compared_tensors << " tensors that both have differ ("
            << base::with_commas(found.compared_elements) << " elements compared)\n";
}

}  // namespace

int checkpoint_diff(const std::vector<std::string>& args) {
  std::string a, b;
  bool as_json = false;
  CLI::App app(
      "What differs between two checkpoints, runs, model files or folders of Hugging Face: exit "
      "code 0 if nothing, 1 if something does. Other settings alone make no difference.",
      "lockstep checkpoint diff");
  app.add_option("A", a, "a checkpoint, a run (its newest checkpoint) or a model")->required();
  app.add_option("B", b, "another")->required();
  app.add_flag("--json", as_json, "one object on stdout");
  if (!parse_arguments(app, args)) return 0;

  const checkpoints::Difference found = checkpoints::compare(a, b);
  if (as_json) {
    std::cout << json_of(found).dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
  } else {
    print_difference(found);
  }
  return found.equal() ? 0 : 1;
}

}  // namespace lockstep::cli
