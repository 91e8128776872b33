/// The flags of `lockstep train`.
#pragma once

#include <string>
#include <vector>

#include "lockstep/cli/config.h"

namespace lockstep::cli {

struct TrainArguments {
  ConfigSources sources;
  std::string topology;  // a file; empty: what is seen from here
  int ranks = 1;
  bool ranks_given = false;
  int max_restarts = 0;
  bool json = false;
  bool print_config = false;
  bool dry_run = false;
  std::vector<std::string> words;  // as they came
};

/// False: only help was wanted. Throws UsageError.
[[nodiscard]] bool parse_train(const std::vector<std::string>& args, TrainArguments& parsed);

}  // namespace lockstep::cli
