/// Run folders: one a run, found again by its name.
#pragma once

#include <string>

#include "lockstep/cli/config.h"

namespace lockstep::cli {

/// Makes `<run.dir>/<run.name>-<4 hex digits>`, which was not there before, with config.json (for
/// the ranks) and config.toml (for people) in it. Throws EnvironmentError naming path and reason.
std::string create_run_folder(const ResolvedConfig& resolved);

/// The weights that `run_or_file` stands for: the file itself, or the run's final.safetensors.
/// Throws StateError where it is not there.
std::string weights_of(const std::string& run_or_file);

/// The whole file. Throws StateError.
/// Removes the beginnings of files whose writers were killed.
void remove_unfinished_files(const std::string& folder);

std::string read_file(const std::string& path);

}  // namespace lockstep::cli
