#include "lockstep/train/model_parts.h"

#include <algorithm>
#include <map>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

Json described(const plan::ParamTable& table, const std::vector<plan::Piece>& pieces, int part) {
  Json params = Json::array();
  for (const plan::Param& param : table.params) {
    const plan::TensorSlice& slice = param.slice;
    params.push_back({param.name, param.shape, param.trainable, slice.logical, slice.shape,
                      slice.dim, slice.blocks, slice.grain, slice.grains});
  }
  Json owned = Json::array();
  for (const plan::Piece& piece : pieces) owned.push_back({piece.param, piece.lo, piece.hi});
  return {{"part", part}, {"params", params}, {"owned", owned}};
}

plan::Param param_of(const Json& json) {
  plan::Param param{.name = json[0], .shape = json[1], .init = {}, .uses = {json[0]}};
  param.numel = 1;
  for (const int64_t size : param.shape) param.numel *= size;
  param.trainable = json[2];
  param.slice = {.logical = json[3],
                 .shape = json[4],
                 .dim = json[5],
                 .blocks = json[6],
                 .grain = json[7],
                 .grains = json[8]};
  return param;
}

}  // namespace

ModelParts exchange_parts(ProcessGroup& group, const plan::ParamTable& table,
                          const plan::ShardLayout& layout, int shard, int part) {
  std::vector<Json> ranks;
  const std::string mine = described(table, layout.pieces(shard), part).dump();
  for (const std::string& text : group.gather_text(mine)) ranks.push_back(Json::parse(text));

  ModelParts parts;
  std::map<std::string, int> place;       // in parts.whole
  std::map<std::string, int> first_part;  // that counts
  for (const Json& rank : ranks) {
    std::vector<int>& held = parts.held.emplace_back();
    for (const Json& json : rank["params"]) {
      const plan::Param param = param_of(json);
      const auto [at, is_new] =
          place.emplace(param.name, static_cast<int>(parts.whole.params.size()));
      if (is_new) parts.whole.params.push_back(param);
      const plan::Param& known = parts.whole.params[static_cast<size_t>(at->second)];
      if (known.shape != param.shape || !(known.slice == param.slice)) {
        throw UsageError(base::str("two parts of the model hold a parameter \"", param.name,
                                   "\" of different shapes.\n  Give each its own name."));
      }
      held.push_back(at->second);
      const auto first = first_part.emplace(param.name, rank["part"]).first;
      first->second = std::min(first->second, rank["part"].get<int>());
    }
  }
  for (const auto& [name, index] : place) parts.whole.by_name.push_back(index);
  for (size_t r = 0; r < ranks.size(); ++r) {
    std::vector<plan::Piece>& owned = parts.owned.emplace_back();
    for (const Json& json : ranks[r]["owned"]) {
      const int index = parts.held[r][json[0].get<size_t>()];
      const std::string& name = parts.whole.params[static_cast<size_t>(index)].name;
      if (first_part.at(name) != ranks[r]["part"]) continue;
      owned.push_back({.param = index, .lo = json[1], .hi = json[2]});
    }
  }
  for (const plan::Param& param : table.params) {
    parts.counts.push_back(first_part.at(param.name) == part);
  }
  for (const plan::Piece& piece : layout.pieces(shard)) {
    if (parts.counts[static_cast<size_t>(piece.param)]) parts.counted.push_back(piece);
  }
  return parts;
}

}  // namespace lockstep
