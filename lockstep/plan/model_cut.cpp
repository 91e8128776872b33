#include "lockstep/plan/model_cut.h"

#include <charconv>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::plan {
namespace {

std::string even_sizes(int64_t layers, int pieces) {
  std::string text;
  for (const ModelChunk& chunk : cut_layers(layers, pieces)) {
    text += base::str(text.empty() ? "" : ",", chunk.last_layer - chunk.first_layer);
  }
  return text;
}

std::string counted(int64_t count, const char* word) {
  return base::str(count, " ", word, count == 1 ? "" : "s");
}

void check_sizes(int64_t layers, int pieces, const std::vector<int64_t>& sizes) {
  const int64_t sum = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  if (std::ssize(sizes) == pieces && sum == layers) return;
  throw UsageError(base::str("parallel.stages has ", counted(std::ssize(sizes), "size"),
                             " with the sum ", sum, ", but the model's ", counted(layers, "layer"),
                             " are cut into ", counted(pieces, "piece"),
                             ".\n  This fits: --set parallel.stages=", even_sizes(layers, pieces)));
}

}  // namespace

std::vector<ModelChunk> cut_layers(int64_t layers, int pieces, const std::vector<int64_t>& sizes) {
  if (layers < pieces) {
    throw UsageError(base::str("model.layers = ", layers, " cannot be cut into ", pieces,
                               " pieces (parallel.pipeline times the chunks of a stage).\n  This "
                               "fits: --set model.layers=",
                               pieces, ", or fewer stages"));
  }
  if (!sizes.empty()) check_sizes(layers, pieces, sizes);
  std::vector<ModelChunk> chunks;
  int64_t first = 0;
  for (int piece = 0; piece < pieces; ++piece) {
    const int64_t size = sizes.empty() ? layers / pieces + (piece < layers % pieces ? 1 : 0)
                                       : sizes[static_cast<size_t>(piece)];
    chunks.push_back({.first_layer = first,
                      .last_layer = first + size,
                      .embeds = piece == 0,
                      .heads = piece + 1 == pieces});
    first += size;
  }
  return chunks;
}

std::vector<int64_t> parse_stage_sizes(const std::string& text) {
  std::vector<int64_t> sizes;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    int64_t size = 0;
    const auto [next, error] = std::from_chars(at, end, size);
    const bool ends = next == end || (*next == ',' && next + 1 != end);
    if (error != std::errc{} || size < 1 || !ends) {
      throw UsageError(base::str("parallel.stages = \"", text,
                                 "\": numbers of layers joined by commas, each 1 or more, as "
                                 "\"3,2,3\""));
    }
    sizes.push_back(size);
    at = next == end ? end : next + 1;
  }
  return sizes;
}

}  // namespace lockstep::plan
