#include "lockstep/cli/open_model.h"

#include <cstdio>

namespace lockstep::cli {

void say_notes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) std::fprintf(stderr, "note: %s\n", note.c_str());
}

checkpoints::WeightOrigin open_model(const std::string& path) {
  checkpoints::WeightOrigin origin = checkpoints::open_weights(path)->origin();
  say_notes(origin.notes);
  return origin;
}

}  // namespace lockstep::cli
