/// Run folders: one a run, found again by its name.
#pragma once

#include <string>

#include "lockstep/cli/config.h"

namespace lockstep::cli {

/// Makes `<run.dir>/<run.name>-<4 hex digits>`, which was not there before, with config.json (for
/// the ranks) and config.toml (for people) in it. Throws EnvironmentError naming path and reason.
std::string create_run_folder(const ResolvedConfig& resolved);

/// The settings of a run that goes on are other ones: config.json and config.toml are replaced, and
/// the former kept as config_before_step_N.json, N being the step it goes on after. Throws
/// StateError.
void replace_config(const std::string& folder, const ResolvedConfig& resolved, int64_t step);

/// A folder for the logs of one more start of a run: RUN/resume_1, resume_2, ... Throws
/// EnvironmentError.
std::string new_log_folder(const std::string& folder);

/// Removes what writers began that were killed: files, and checkpoints.
void remove_unfinished_files(const std::string& folder);

/// The whole file. Throws StateError.
std::string read_file(const std::string& path);

}  // namespace lockstep::cli
