#include "lockstep/train/model_parts.h"

#include <algorithm>
#include <map>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/plan/param_table_json.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

Json described(const plan::ParamTable& table, const std::vector<plan::Piece>& pieces, int part) {
  Json owned = Json::array();
  for (const plan::Piece& piece : pieces) owned.push_back({piece.param, piece.lo, piece.hi});
  return {{"part", part}, {"table", plan::to_json(table)}, {"owned", owned}};
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
    for (const plan::Param& param : plan::param_table_from_json(rank["table"]).params) {
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
