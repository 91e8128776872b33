#include "lockstep/cli/toml_file.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/cli/config.h"

namespace lockstep::cli {
namespace {

nlohmann::json value_of(const toml::node& node, const std::string& place, const std::string& key) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return number->get();
  if (const auto* number = node.as_floating_point()) return number->get();
  if (const auto* truth = node.as_boolean()) return truth->get();
  throw UsageError(base::str(place, "\"", key, "\" is ",
                             node.is_table() ? "a table" : "a list or date",
                             "; a key has one number, text, or true or false."));
}

std::string help_if_preset(const std::string& path) {
  for (const std::string& name : plan::preset_names()) {
    if (path == name) return base::str("\n  A preset is asked for with --preset ", name, ".");
  }
  return "";
}

}  // namespace

int line_of(const toml::node& node) { return static_cast<int>(node.source().begin.line); }

toml::table parse_toml(const std::string& path, const std::string& holds, const std::string& help) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    if (std::filesystem::exists(path, error)) {
      throw UsageError(base::str(path, " is no regular file; ", holds, " a TOML file."));
    }
    throw UsageError(base::str("there is no file ", path, ".", help));
  }
  try {
    return toml::parse_file(path);
  } catch (const toml::parse_error& error) {
    throw UsageError(
        base::str(path, ":", error.source().begin.line, ": no TOML: ", error.description()));
  }
}

std::vector<FileSetting> read_toml(const std::string& path,
                                   const std::vector<std::string>& known_sections) {
  std::vector<FileSetting> settings;
  for (const auto& [name, node] : parse_toml(path, "settings are", help_if_preset(path))) {
    const std::string section(name.str());
    const std::string place = base::str(path, ":", line_of(node), ": ");
    const toml::table* keys = node.as_table();
    if (keys == nullptr) {
      settings.push_back({section, value_of(node, place, section), line_of(node)});
      continue;
    }
    if (keys->empty() &&
        std::find(known_sections.begin(), known_sections.end(), section) == known_sections.end()) {
      const std::string near = base::nearest(section, known_sections);
      throw UsageError(base::str(place, "there is no section [", section, "].\n  ",
                                 near.empty() ? "The sections are " + base::joined(known_sections)
                                              : base::str("Did you mean [", near, "]?")));
    }
    for (const auto& [key_name, value] : *keys) {
      const std::string key = base::str(section, ".", key_name.str());
      const std::string key_place = base::str(path, ":", line_of(value), ": ");
      settings.push_back({key, value_of(value, key_place, key), line_of(value)});
    }
  }
  // As a reader meets them: the first mistake from the top is the one reported.
  std::stable_sort(settings.begin(), settings.end(),
                   [](const auto& a, const auto& b) { return a.line < b.line; });
  return settings;
}

}  // namespace lockstep::cli
