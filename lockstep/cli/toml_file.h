/// TOML files, with the lines that mistakes are on.
#pragma once

#define TOML_EXCEPTIONS 1
#include <string>

#include <toml++/toml.h>

namespace lockstep::cli {

/// Reads a file. `holds` says what for ("settings are"), `help` what to do if it is not there.
/// Throws UsageError: it is not there, is no regular file, or is no TOML (with the line).
toml::table parse_toml(const std::string& path, const std::string& holds, const std::string& help);

int line_of(const toml::node& node);

}  // namespace lockstep::cli
