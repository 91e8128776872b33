/// `lockstep tokenizer`: text to ids, ids to text, and what a vocabulary is.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// Runs `lockstep tokenizer ARGS...` and returns the exit code. Errors come out as lockstep::Error.
int tokenizer_command(const std::vector<std::string>& args);

}  // namespace lockstep::cli
