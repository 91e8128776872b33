/// How a pipeline cuts a model: a run of layers for each piece. The first piece also has what comes
/// before the layers (embeddings), the last what comes after them (head and loss).
///
///   8 layers, 3 pieces:   embed 0 1 2 | 3 4 5 | 6 7 head
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::plan {

struct ModelChunk {
  int64_t first_layer = 0;
  int64_t last_layer = 0;  // one behind
  bool embeds = true;
  bool heads = true;
  bool operator==(const ModelChunk&) const = default;
};

/// Runs differ by at most one layer, longer ones first; `sizes` says otherwise. Throws UsageError,
/// with numbers and what fits, for fewer layers than pieces and for sizes that are not `pieces`
/// numbers of 1 or more with the sum `layers`.
std::vector<ModelChunk> cut_layers(int64_t layers, int pieces,
                                   const std::vector<int64_t>& sizes = {});

/// "3,2,3". Throws UsageError naming parallel.stages.
std::vector<int64_t> parse_stage_sizes(const std::string& text);

}  // namespace lockstep::plan
