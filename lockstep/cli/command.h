/// The `lockstep` command: a name, and a function that runs the rest of the line.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

inline constexpr const char* kVersion = "0.1.0";

/// Runs `lockstep ARGS...` and returns its exit code. Mistakes come out as lockstep::Error.
int run_command(const std::vector<std::string>& args);

/// All of the program: run_command, with mistakes as a message on stderr and an exit code. A result
/// that could not be written to stdout is a failure too. SIGPIPE and SIGXFSZ are ignored: a reader
/// that is gone or a limit on file sizes comes back from the write as an error. Ranks find both at
/// their default (launch/rank_process.h), and ours ignore them too.
int run_program(const std::vector<std::string>& args);

}  // namespace lockstep::cli
