#include "lockstep/cli/algorithm_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/cli/toml_file.h"
#include "lockstep/files/atomic_file.h"
#include "lockstep/plan/engines.h"

namespace lockstep::cli {
namespace {

using plan::Algorithm;
using plan::Collective;

constexpr int64_t kMostRanks = 65'536;
constexpr int64_t kMostBytes = std::numeric_limits<int64_t>::max();
constexpr const char* kMeasureAnew =
    "Measure anew, into another file: lockstep bench --tune FILE -n RANKS";

std::vector<std::string> operation_names() {
  std::vector<std::string> names;
  for (const Collective operation : plan::kTunedOperations) names.push_back(name_of(operation));
  return names;
}

class AlgorithmFileReader {
 public:
  explicit AlgorithmFileReader(std::string path) : path_(std::move(path)) {}

  plan::TunedTable read() {
    const toml::table root =
        parse_toml(path_, "a table of algorithms is",
                   "\n  It is made by measuring: lockstep bench --tune " + path_ + " -n RANKS");
    check_schema(root);
    require_known(root, {"schema", "tables"}, "a table of algorithms");
    const toml::node* tables = root.get("tables");
    if (tables == nullptr) return {};
    if (!tables->is_array_of_tables()) {
      refuse(*tables, "\"tables\" is no list of sections.", "Write [[tables]].");
    }
    for (const toml::node& section : *tables->as_array()) add_section(*section.as_table());
    return std::move(table_);
  }

 private:
  [[noreturn]] void refuse(const toml::node& node, const std::string& what,
                           const std::string& help) const {
    throw UsageError(base::str(path_, ":", line_of(node), ": ", what, "\n  ", help));
  }

  void check_schema(const toml::table& root) const {
    const toml::node* schema = root.get("schema");
    if (schema == nullptr) {
      throw UsageError(base::str(path_,
                                 ":1: there is no schema, so this is no table of algorithms.",
                                 "\n  ", kMeasureAnew));
    }
    if (schema->value_exact<int64_t>() == kAlgorithmFileSchema) return;
    refuse(*schema,
           base::str("this lockstep reads schema ", kAlgorithmFileSchema, ", not this one."),
           kMeasureAnew);
  }

  void require_known(const toml::table& table, const std::vector<std::string>& known,
                     const std::string& where) const {
    for (const auto& [name, node] : table) {
      const std::string key(name.str());
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      const std::string near = base::nearest(key, known);
      refuse(node, base::str("there is no \"", key, "\" in ", where, "."),
             near.empty() ? base::str("There is ", base::joined(known), ".")
                          : base::str("Did you mean \"", near, "\"?"));
    }
  }

  int64_t number(const toml::table& table, const char* key, int64_t least, int64_t most) const {
    const std::string help =
        base::str("Write ", key, " = a whole number from ", least, " to ", most, ".");
    const toml::node* node = table.get(key);
    if (node == nullptr) refuse(table, base::str("there is no ", key, "."), help);
    const auto value = node->value_exact<int64_t>();
    if (!value || *value < least || *value > most) {
      refuse(*node, base::str(key, " is no such number."), help);
    }
    return *value;
  }

  void add_section(const toml::table& table) {
    std::vector<std::string> known = {"engine", "ranks", "hosts", "modelled", "machine"};
    for (const std::string& name : operation_names()) known.push_back(name);
    require_known(table, known, "a table");
    plan::TunedSection section;
    section.where.engine = engine_of(table);
    section.where.ranks = static_cast<int>(number(table, "ranks", 1, kMostRanks));
    section.where.hosts = static_cast<int>(number(table, "hosts", 1, section.where.ranks));
    if (section.where.ranks % section.where.hosts != 0) {
      refuse(*table.get("hosts"),
             base::str(section.where.ranks, " ranks are no equal shares of ", section.where.hosts,
                       " hosts."),
             "Tables are for hosts of as many ranks each.");
    }
    section.where.modelled = flag(table, "modelled");
    section.machine = table["machine"].value_or(std::string());
    if (plan::section_for(table_, section.where) != nullptr) {
      refuse(table, base::str("a second table for ", plan::text(section.where), "."),
             "Leave one of them.");
    }
    for (const Collective operation : plan::kTunedOperations) {
      const toml::node* rows = table.get(name_of(operation));
      if (rows != nullptr) section.rows[operation] = read_rows(*rows, operation, section.where);
    }
    table_.push_back(std::move(section));
  }

  std::string engine_of(const toml::table& table) const {
    std::vector<std::string> engines;
    for (const plan::EngineName& engine : plan::kEngines) engines.emplace_back(engine.name);
    const toml::node* node = table.get("engine");
    const std::string help = base::str("Engines: ", base::joined(engines), ".");
    if (node == nullptr) refuse(table, "there is no engine.", help);
    const std::string name = node->value_exact<std::string>().value_or("");
    if (std::find(engines.begin(), engines.end(), name) == engines.end()) {
      refuse(*node, base::str("there is no engine \"", name, "\"."), help);
    }
    return name;
  }

  bool flag(const toml::table& table, const char* key) const {
    const toml::node* node = table.get(key);
    if (node == nullptr) return false;
    if (!node->is_boolean()) refuse(*node, base::str(key, " is true or false."), "Write one.");
    return *node->value_exact<bool>();
  }

  std::vector<plan::TunedRow> read_rows(const toml::node& node, Collective operation,
                                        const plan::TunedFor& where) const {
    if (!node.is_array_of_tables()) {
      refuse(node, base::str(name_of(operation), " is no list of rows."),
             base::str("Write [[tables.", name_of(operation), "]]."));
    }
    std::vector<plan::TunedRow> rows;
    for (const toml::node& element : *node.as_array()) {
      const toml::table& table = *element.as_table();
      require_known(table, {"algorithm", "up_to_bytes", "measured_us"}, "a row");
      if (!rows.empty() && rows.back().most_bytes == kMostBytes) {
        refuse(table, "a row after one that has no end.",
               "Give the rows before the last one up_to_bytes.");
      }
      const int64_t least = rows.empty() ? 0 : rows.back().most_bytes + 1;
      plan::TunedRow row{.algorithm = algorithm_of(table, operation, where), .measured = {}};
      if (table.get("up_to_bytes") != nullptr) {
        row.most_bytes = number(table, "up_to_bytes", least, kMostBytes - 1);
      }
      if (const toml::node* measured = table.get("measured_us")) {
        row.measured = read_measured(*measured, operation);
      }
      rows.push_back(std::move(row));
    }
    return rows;
  }

  Algorithm algorithm_of(const toml::table& row, Collective operation,
                         const plan::TunedFor& where) const {
    const toml::node* node = row.get("algorithm");
    if (node == nullptr) refuse(row, "a row without an algorithm.", known_algorithms(operation));
    const std::string name = node->value_exact<std::string>().value_or("");
    const Algorithm algorithm = parse(*node, name, operation);
    if (!plan::keeps_the_order(operation, algorithm, where.ranks, where.hosts)) {
      std::vector<std::string> keep;
      for (const Algorithm one : plan::algorithms_of(operation)) {
        if (plan::keeps_the_order(operation, one, where.ranks, where.hosts)) {
          keep.push_back(name_of(one));
        }
      }
      refuse(*node,
             base::str(name, " adds in another order than the sum tree on ", plan::text(where),
                       ": the bits of a run would depend on the table."),
             base::str("These keep the order: ", base::joined(keep), "."));
    }
    return algorithm;
  }

  static std::string known_algorithms(Collective operation) {
    std::vector<std::string> names;
    for (const Algorithm one : plan::algorithms_of(operation)) names.push_back(name_of(one));
    return base::str("Algorithms of ", name_of(operation), ": ", base::joined(names), ".");
  }

  Algorithm parse(const toml::node& node, const std::string& name, Collective operation) const {
    for (const Algorithm one : plan::algorithms_of(operation)) {
      if (name_of(one) == name) return one;
    }
    refuse(node, base::str(name_of(operation), " has no algorithm \"", name, "\"."),
           known_algorithms(operation));
  }

  std::vector<plan::SizeTimes> read_measured(const toml::node& node, Collective operation) const {
    constexpr const char* kHelp =
        "Write { bytes = 256, direct = [9.1, 0.4] }: median and spread in us, or leave measured_us "
        "out.";
    const toml::array* list = node.as_array();
    if (list == nullptr) refuse(node, "measured_us is no list.", kHelp);
    std::vector<plan::SizeTimes> sizes;
    for (const toml::node& element : *list) {
      const toml::table* table = element.as_table();
      if (table == nullptr) refuse(element, "measured_us has no such element.", kHelp);
      plan::SizeTimes times{.bytes = number(*table, "bytes", 0, kMostBytes), .candidates = {}};
      for (const auto& [key, value] : *table) {
        if (key.str() == "bytes") continue;
        const Algorithm algorithm = parse(value, std::string(key.str()), operation);
        const toml::array* pair = value.as_array();
        if (pair == nullptr || pair->size() != 2 || !(*pair)[0].is_number() ||
            !(*pair)[1].is_number()) {
          refuse(value, "a time is no pair of numbers.", kHelp);
        }
        times.candidates.push_back(
            {algorithm, *(*pair)[0].value<double>(), *(*pair)[1].value<double>()});
      }
      std::sort(times.candidates.begin(), times.candidates.end(),
                [](const auto& a, const auto& b) { return a.algorithm < b.algorithm; });
      sizes.push_back(std::move(times));
    }
    return sizes;
  }

  std::string path_;
  plan::TunedTable table_;
};

/// Two decimals: a hundredth of a microsecond is below what any clock here tells apart.
std::string us_text(double us) {
  std::array<char, 32> text{};
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), us, std::chars_format::fixed, 2);
  return {text.data(), end.ptr};
}

std::string size_text(const plan::SizeTimes& times) {
  std::string text = base::str("  { bytes = ", times.bytes);
  for (const plan::CandidateTime& candidate : times.candidates) {
    text += base::str(", ", name_of(candidate.algorithm), " = [", us_text(candidate.median_us),
                      ", ", us_text(candidate.spread_us), "]");
  }
  return text + " },\n";
}

std::string row_text(Collective operation, const plan::TunedRow& row) {
  std::string text = base::str("\n[[tables.", name_of(operation), "]]\nalgorithm = \"",
                               name_of(row.algorithm), "\"\n");
  if (row.most_bytes != kMostBytes) text += base::str("up_to_bytes = ", row.most_bytes, "\n");
  if (row.measured.empty()) return text;
  text += "measured_us = [\n";
  for (const plan::SizeTimes& times : row.measured) text += size_text(times);
  return text + "]\n";
}

}  // namespace

plan::TunedTable read_algorithm_file(const std::string& path) {
  return AlgorithmFileReader(path).read();
}

plan::TunedTable read_algorithm_file_if_any(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return {};
  return read_algorithm_file(path);
}

std::string algorithm_file_text(const plan::TunedTable& table) {
  std::string text = base::str(
      "# Which algorithm carries out a collective: the first row that is long enough for a rank's\n"
      "# tensor. `lockstep bench --tune` measured it: [median, spread] in us a call. Read by\n"
      "# comm.table and `lockstep bench --table`.\n"
      "schema = ",
      kAlgorithmFileSchema, "\n");
  for (const plan::TunedSection& section : table) {
    // Texts are written alike in JSON and TOML.
    text += base::str("\n[[tables]]\nengine = ", nlohmann::json(section.where.engine).dump(),
                      "\nranks = ", section.where.ranks, "\nhosts = ", section.where.hosts, "\n",
                      section.where.modelled ? "modelled = true\n" : "",
                      "machine = ", nlohmann::json(section.machine).dump(), "\n");
    for (const auto& [operation, rows] : section.rows) {
      for (const plan::TunedRow& row : rows) text += row_text(operation, row);
    }
  }
  return text;
}

void write_algorithm_file(const std::string& path, const plan::TunedTable& table) {
  files::AtomicFile file(path);
  file.write(algorithm_file_text(table));
  file.commit();
}

std::string follow_table(plan::TrainConfig& config, int ranks, int hosts) {
  const std::string& path = config.comm.table;
  config.algorithms = {};
  if (path.empty()) return "";
  if (config.comm.algorithm != "auto") {
    return base::str("sums by ", config.comm.algorithm, ", whatever ", path, " says");
  }
  const plan::TunedTable table = read_algorithm_file(path);
  if (hosts == 0) return path + " has nothing for hosts of unequal sizes: built-in rules";
  const plan::TunedFor where{.engine = config.comm.engine, .ranks = ranks, .hosts = hosts};
  const plan::TunedSection* section = plan::section_for(table, where);
  if (section == nullptr) {
    return base::str(path, " has nothing for ", plan::text(where), ": built-in rules");
  }
  config.algorithms = plan::rules_of(*section);
  return base::str(path, " for ", plan::text(where), ": ", plan::text(config.algorithms));
}

}  // namespace lockstep::cli
