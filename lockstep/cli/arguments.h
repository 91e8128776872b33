/// Command lines: CLI11 reads them, mistakes are told in our form.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace lockstep::cli {

/// Reads `args` into what `app` has bound. False: help was asked for, and has been printed.
/// Throws UsageError: unknown flag (with the nearest), missing or malformed value.
[[nodiscard]] bool parse_arguments(CLI::App& app, const std::vector<std::string>& args);

/// The flag -n of all commands: anything but a whole number is refused in words of its own.
CLI::Option* add_ranks(CLI::App& app, int& ranks, const std::string& description);

}  // namespace lockstep::cli
