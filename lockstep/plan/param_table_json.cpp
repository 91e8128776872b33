#include "lockstep/plan/param_table_json.h"

#include <array>
#include <map>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::plan {
namespace {

using Json = nlohmann::json;

constexpr std::array<const char*, 3> kInits = {"zeros", "ones", "normal"};  // by Init::Kind

Json slice_json(const TensorSlice& slice) {
  return {{"of", slice.logical},    {"shape", slice.shape}, {"dim", slice.dim},
          {"blocks", slice.blocks}, {"grain", slice.grain}, {"grains", slice.grains}};
}

Json param_json(const Param& param) {
  Json json = {{"name", param.name}, {"shape", param.shape}};
  if (!param.trainable) json["trainable"] = false;
  if (param.decay != (param.shape.size() >= 2)) json["decay"] = param.decay;
  if (!(param.init == Init{})) {
    json["init"] = {kInits[static_cast<size_t>(param.init.kind)], param.init.std};
  }
  if (param.uses != std::vector<std::string>{param.name}) json["uses"] = param.uses;
  if (!param.elsewhere.empty()) json["elsewhere"] = param.elsewhere;
  if (!(param.slice == TensorSlice{})) json["slice"] = slice_json(param.slice);
  if (param.use_chunks != std::vector<int>{0}) json["use_chunks"] = param.use_chunks;
  if (param.is_across) json["is_across"] = true;
  if (param.unit) json["unit"] = *param.unit;
  return json;
}

Init init_of(const Json& json) {
  for (size_t kind = 0; kind < kInits.size(); ++kind) {
    if (json.at(0) == kInits[kind]) {
      return {.kind = static_cast<Init::Kind>(kind), .std = json.at(1)};
    }
  }
  throw UsageError(base::str("\"init\" is ", json.dump()));
}

int64_t numel_of(const std::vector<int64_t>& shape) {
  int64_t numel = 1;
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(numel, size, &numel)) {
      throw UsageError("\"shape\" is no count of elements");
    }
  }
  return numel;
}

/// The walk over a slice's runs goes by its numbers: they must belong together.
void require_fit(const TensorSlice& slice, std::vector<int64_t> shape) {
  numel_of(slice.shape);
  bool fits = slice.grains >= 1 && slice.grain >= 0 && slice.grain < slice.grains &&
              slice.dim >= 0 && slice.dim < std::ssize(slice.shape) &&
              shape.size() == slice.shape.size();
  int64_t along = 0;
  for (const int64_t block : slice.blocks) {
    fits = fits && block >= 0 && block % slice.grains == 0 &&
           !__builtin_add_overflow(along, block, &along);
  }
  if (fits) {
    int64_t& own = shape[static_cast<size_t>(slice.dim)];
    fits = own == along / slice.grains;
    own = slice.shape[static_cast<size_t>(slice.dim)];
  }
  if (!fits || along < shape[static_cast<size_t>(slice.dim)] || shape != slice.shape) {
    throw UsageError("\"slice\" does not give the tensor's shape");
  }
}

TensorSlice slice_of(const Json& json, const std::vector<int64_t>& shape) {
  TensorSlice slice{.logical = json.at("of"),
                    .shape = json.at("shape"),
                    .dim = json.at("dim"),
                    .blocks = json.at("blocks"),
                    .grain = json.at("grain"),
                    .grains = json.at("grains")};
  if (!slice.logical.empty()) require_fit(slice, shape);
  return slice;
}

Param param_of(const Json& json) {
  const std::string name = json.at("name");
  Param param{.name = name, .shape = json.at("shape"), .init = {}, .uses = {name}};
  param.numel = numel_of(param.shape);
  param.trainable = json.value("trainable", true);
  param.decay = json.value("decay", param.shape.size() >= 2);
  if (json.contains("init")) param.init = init_of(json["init"]);
  param.uses = json.value("uses", param.uses);
  param.elsewhere = json.value("elsewhere", param.elsewhere);
  if (json.contains("slice")) param.slice = slice_of(json["slice"], param.shape);
  param.use_chunks = json.value("use_chunks", param.use_chunks);
  if (param.use_chunks.empty()) throw UsageError("\"use_chunks\" is empty");
  param.is_across = json.value("is_across", false);
  if (json.contains("unit")) param.unit = json["unit"].get<std::string>();
  return param;
}

[[noreturn]] void refuse(const Json& json, const std::string& why) {
  throw UsageError(base::str("this is no parameter: ", why, ".\n  ",
                             json.dump(-1, ' ', false, Json::error_handler_t::replace)));
}

}  // namespace

Json to_json(const ParamTable& table) {
  Json json = Json::array();
  for (const Param& param : table.params) json.push_back(param_json(param));
  return json;
}

ParamTable param_table_from_json(const Json& json) {
  if (!json.is_array()) refuse(json, "a table is a list of them");
  ParamTable table;
  std::map<std::string, int> place;
  for (const Json& entry : json) {
    try {
      table.params.push_back(param_of(entry));
    } catch (const Json::exception& error) {
      refuse(entry, error.what());
    } catch (const UsageError& error) {
      refuse(entry, error.what());
    }
    const int index = static_cast<int>(place.size());
    if (!place.emplace(table.params.back().name, index).second)
      refuse(entry, "its name came before");
  }
  for (const auto& [name, index] : place) table.by_name.push_back(index);
  return table;
}

}  // namespace lockstep::plan
