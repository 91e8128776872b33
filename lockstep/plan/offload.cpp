#include "lockstep/plan/offload.h"

#include <algorithm>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::plan {

Offload offload_of(const TrainConfig& config) {
  const std::string& kinds = config.memory.offload_kinds;
  if (config.memory.offload == "none") {
    if (kinds != "auto" || !config.memory.offload_dir.empty()) {
      throw UsageError(base::str(kinds != "auto" ? "memory.offload_kinds" : "memory.offload_dir",
                                 " has no effect with memory.offload = \"none\".\n  This fits: "
                                 "--set memory.offload=disk"));
    }
    return {};
  }
  const bool zero3 = config.parallel.shard == "zero3";
  if (kinds == "auto") return {.parameters = zero3, .optimizer = true};

  Offload offload;
  std::istringstream words(kinds);
  for (std::string word; std::getline(words, word, '+');) {
    bool* const wanted = word == "parameters"    ? &offload.parameters
                         : word == "optimizer"   ? &offload.optimizer
                         : word == "activations" ? &offload.activations
                                                 : nullptr;
    if (wanted == nullptr) {
      throw UsageError(base::str("memory.offload_kinds = \"", kinds, "\": \"", word,
                                 "\" is no kind of state that can be offloaded.\n  These are: "
                                 "parameters, optimizer, activations, joined by +, or auto"));
    }
    *wanted = true;
  }
  if (!offload.any()) {
    throw UsageError(
        "memory.offload_kinds is empty.\n  This fits: --set memory.offload_kinds=auto");
  }
  if (offload.parameters && !zero3) {
    throw UsageError(base::str("memory.offload_kinds = \"", kinds,
                               "\": parameters are divided, and so can be offloaded, with "
                               "parallel.shard = \"zero3\" only; it is \"",
                               config.parallel.shard,
                               "\".\n  These fit: --set parallel.shard=zero3, or --set "
                               "memory.offload_kinds=optimizer"));
  }
  if (offload.parameters && !offload.optimizer) {
    throw UsageError(base::str("memory.offload_kinds = \"", kinds,
                               "\": offloaded parameters are updated where they are, with their "
                               "moments.\n  This fits: --set "
                               "memory.offload_kinds=parameters+optimizer"));
  }
  return offload;
}

StreamBlocks stream_blocks(int64_t elements) {
  constexpr int64_t kPage = 1024;
  constexpr int64_t kLargest = int64_t{1} << 19;
  StreamBlocks stream;
  const int64_t share = elements / (8 * stream.blocks) / kPage * kPage;
  stream.elements = std::clamp(share, 4 * kPage, kLargest);
  return stream;
}

int64_t streamed_bytes(int64_t elements, bool with_masters) {
  const StreamBlocks stream = stream_blocks(elements);
  return stream.blocks * stream.elements * (with_masters ? 12 : 8);
}

}  // namespace lockstep::plan
