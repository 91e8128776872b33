#include "lockstep/checkpoint/manifest.h"

#include <algorithm>
#include <set>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/shallow_json.h"
#include "lockstep/base/str.h"
#include "lockstep/files/sha256.h"
#include "lockstep/plan/optimizers.h"

namespace lockstep::checkpoints {
namespace {

using Json = nlohmann::json;

constexpr const char* kFormat = "lockstep checkpoint";

[[noreturn]] void refuse(const std::string& why) { throw StateError(why); }

/// The one text of a value, with its own digest in it.
std::string sealed(Json body) {
  body["sha256"] = files::sha256_hex(body.dump());
  return body.dump(1, ' ', true) + '\n';
}

/// The value of a text that `sealed` made.
Json unsealed(std::string_view text) {
  Json body = Json::parse(base::shallow_json(text), nullptr, /*allow_exceptions=*/false);
  if (!body.is_object() || !body.contains("sha256")) refuse("it is no whole JSON object of ours");
  const Json stated = body["sha256"];
  body.erase("sha256");
  std::string own;
  try {
    own = sealed(body);
  } catch (const Json::exception&) {
    refuse("it holds text that is no UTF-8");
  }
  if (own != text) {
    refuse(base::str("its contents are not those of its digest ",
                     stated.is_string() ? stated.get<std::string>() : "",
                     ": it is damaged or was edited"));
  }
  return body;
}

int64_t count_of(const Json& json) {
  if (!json.is_number_unsigned() || json.get<uint64_t>() > uint64_t{1} << 62) {
    refuse(base::str("it has ", json.dump(-1, ' ', true).substr(0, 40), " where a count belongs"));
  }
  return json.get<int64_t>();
}

int small_count_of(const Json& json) {
  const int64_t count = count_of(json);
  if (count > 1 << 30) refuse(base::str("it has ", count, " where a small count belongs"));
  return static_cast<int>(count);
}

plan::Digest digest_of(const Json& json) {
  try {
    return plan::parse_digest(json.get<std::string>());
  } catch (const UsageError& error) {
    refuse(error.what());
  }
}

/// A file of the folder itself, and nothing that a name could lead out of it.
std::string file_name_of(const Json& json) {
  const auto name = json.get<std::string>();
  if (name.empty() || name.find('/') != std::string::npos || name[0] == '.') {
    refuse(base::str("it names a file \"", name, "\", which is no name in its folder"));
  }
  return name;
}

/// Elements of a shape; refuses what no tensor has.
int64_t elements_of(const std::vector<int64_t>& shape, const std::string& name) {
  int64_t numel = 1;
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(numel, size, &numel) || numel > int64_t{1} << 60) {
      refuse(base::str("tensor \"", name, "\" has an impossible shape"));
    }
  }
  return numel;
}

std::vector<int64_t> counts_of(const Json& json) {
  std::vector<int64_t> counts;
  for (const Json& count : json) counts.push_back(count_of(count));
  return counts;
}

/// By grain, then element.
bool by_place(const SavedSlice& a, const SavedSlice& b) {
  return std::pair(a.grain, a.lo) < std::pair(b.grain, b.lo);
}

/// Every grain exactly once, in `files` files, in order.
void check_cover(const SavedTensor& tensor, int files) {
  std::vector<int64_t> covered(static_cast<size_t>(tensor.grains), 0);
  if (!std::is_sorted(tensor.slices.begin(), tensor.slices.end(), by_place)) {
    refuse(base::str(tensor.kind, " \"", tensor.name, "\": its slices are not in order"));
  }
  for (const SavedSlice& slice : tensor.slices) {
    if (slice.file >= files) {
      refuse(base::str(tensor.kind, " \"", tensor.name, "\" has a slice in file ", slice.file,
                       " of ", files));
    }
    int64_t& done = covered[static_cast<size_t>(slice.grain)];
    if (slice.lo != done || slice.hi <= slice.lo) {
      refuse(base::str(tensor.kind, " \"", tensor.name, "\", grain ", slice.grain,
                       ": a slice begins at element ", slice.lo, " where ", done, " is next"));
    }
    done = slice.hi;
  }
  for (int grain = 0; grain < tensor.grains; ++grain) {
    const int64_t numel = tensor.grain_param(grain).numel;
    if (covered[static_cast<size_t>(grain)] == numel) continue;
    refuse(base::str(tensor.kind, " \"", tensor.name, "\", grain ", grain, ": its slices hold ",
                     covered[static_cast<size_t>(grain)], " of ", numel, " elements"));
  }
}

void check_cut(const SavedTensor& tensor) {
  const bool fits = tensor.dim < std::ssize(tensor.shape) && tensor.grains >= 1 &&
                    tensor.grains <= 1 << 16 && !tensor.blocks.empty() &&
                    tensor.blocks.size() <= 64;
  int64_t sum = 0;
  for (const int64_t block : tensor.blocks) {
    if (!fits || block % tensor.grains != 0 || __builtin_add_overflow(sum, block, &sum)) {
      refuse(base::str("tensor \"", tensor.name, "\" is cut as none can be"));
    }
  }
  if (!fits || sum < tensor.shape[static_cast<size_t>(tensor.dim)]) {
    refuse(base::str("tensor \"", tensor.name, "\" is cut as none can be"));
  }
  std::vector<int64_t> padded = tensor.shape;
  padded[static_cast<size_t>(tensor.dim)] = sum;
  elements_of(padded, tensor.name);
}

}  // namespace

void to_json(Json& json, const PartFile& part) {
  json = {{"name", part.name},
          {"bytes", part.bytes},
          {"header_sha256", part.header_sha256},
          {"values", part.values.text()},
          {"elements", part.elements},
          {"params", part.params.text()}};
}

void from_json(const Json& json, PartFile& part) {
  part = {.name = file_name_of(json.at("name")),
          .bytes = count_of(json.at("bytes")),
          .header_sha256 = json.at("header_sha256"),
          .values = digest_of(json.at("values")),
          .elements = count_of(json.at("elements")),
          .params = digest_of(json.at("params"))};
}

void to_json(Json& json, const SavedTensor& tensor) {
  Json slices = Json::array();
  for (const SavedSlice& slice : tensor.slices) {
    slices.push_back({slice.file, slice.grain, slice.lo, slice.hi});
  }
  json = {{"kind", tensor.kind},
          {"name", tensor.name},
          {"shape", tensor.shape},
          {"slices", std::move(slices)}};
  if (!tensor.blocks.empty()) {
    json["cut"] = {{"dim", tensor.dim}, {"blocks", tensor.blocks}, {"grains", tensor.grains}};
  }
}

void from_json(const Json& json, SavedTensor& tensor) {
  tensor = {};
  tensor.kind = json.at("kind");
  tensor.name = json.at("name");
  if (tensor.kind.empty() || tensor.name.empty()) refuse("it lists a tensor without a name");
  tensor.shape = counts_of(json.at("shape"));
  elements_of(tensor.shape, tensor.name);
  if (json.contains("cut")) {
    const Json& cut = json["cut"];
    tensor.dim = small_count_of(cut.at("dim"));
    tensor.blocks = counts_of(cut.at("blocks"));
    tensor.grains = small_count_of(cut.at("grains"));
    check_cut(tensor);
  }
  for (const Json& slice : json.at("slices")) {
    if (!slice.is_array() || slice.size() != 4) refuse("it lists a slice that is none");
    tensor.slices.push_back({.file = small_count_of(slice[0]),
                             .grain = small_count_of(slice[1]),
                             .lo = count_of(slice[2]),
                             .hi = count_of(slice[3])});
    if (tensor.slices.back().grain >= tensor.grains) {
      refuse(
          base::str(tensor.kind, " \"", tensor.name, "\" has a slice of a grain that it has not"));
    }
  }
}

int64_t SavedTensor::numel() const {
  int64_t numel = 1;
  for (const int64_t size : shape) numel *= size;
  return numel;
}

plan::Param SavedTensor::grain_param(int grain) const {
  plan::Param param{.name = name, .shape = shape, .init = {}, .uses = {name}};
  if (!blocks.empty()) {
    int64_t sum = 0;
    for (const int64_t block : blocks) sum += block;
    param.shape[static_cast<size_t>(dim)] = sum / grains;
    param.slice = {.logical = name,
                   .shape = shape,
                   .dim = dim,
                   .blocks = blocks,
                   .grain = grain,
                   .grains = grains};
  }
  param.numel = 1;
  for (const int64_t size : param.shape) param.numel *= size;
  return param;
}

std::string moment_kind(plan::Optimizer optimizer, int moment) {
  const bool is_adam = plan::traits_of(optimizer).moments == 2;
  if (!is_adam) return "momentum";
  return moment == 0 ? "exp_avg" : "exp_avg_sq";
}

const SavedTensor* Index::find(const std::string& kind, const std::string& name) const {
  const std::pair<std::string_view, std::string_view> wanted{kind, name};
  const auto found = std::lower_bound(
      tensors.begin(), tensors.end(), wanted,
      [](const SavedTensor& tensor, const auto& key) { return key_of(tensor) < key; });
  const bool is_there = found != tensors.end() && found->kind == kind && found->name == name;
  return is_there ? &*found : nullptr;
}

void Index::add(const SavedTensor& tensor) {
  const auto at = std::lower_bound(
      tensors.begin(), tensors.end(), tensor,
      [](const SavedTensor& a, const SavedTensor& b) { return key_of(a) < key_of(b); });
  SavedTensor* known = nullptr;
  if (at == tensors.end() || key_of(*at) != key_of(tensor)) {
    known = &*tensors.insert(at, tensor);
  } else {
    known = &*at;
    known->slices.insert(known->slices.end(), tensor.slices.begin(), tensor.slices.end());
  }
  std::sort(known->slices.begin(), known->slices.end(), by_place);
}

int64_t Manifest::bytes() const {
  int64_t bytes = index_bytes;
  for (const PartFile& part : files) bytes += part.bytes;
  return bytes;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

std::string entry_name(const SavedTensor& tensor, const SavedSlice& slice) {
  const std::string grain = tensor.blocks.empty() ? "" : base::str('@', slice.grain);
  return base::str(tensor.kind, '/', tensor.name, grain, '[', slice.lo, ':', slice.hi, ']');
}

std::string manifest_text(const Manifest& manifest) {
  return sealed({{"format", kFormat},
                 {"schema", kSchema},
                 {"step", manifest.step},
                 {"saved_at", manifest.saved_at},
                 {"config", plan::to_json(manifest.config)},
                 {"vocab", manifest.vocab},
                 {"identity", manifest.identity},
                 {"param_digest", manifest.param_digest},
                 {"world", manifest.world},
                 {"state", manifest.state},
                 {"rank_states", manifest.rank_states},
                 {"index", {{"bytes", manifest.index_bytes}, {"sha256", manifest.index_sha256}}},
                 {"files", manifest.files}});
}

Manifest parse_manifest(std::string_view text) {
  const Json json = unsealed(text);
  try {
    if (json.at("format") != kFormat) refuse("it is no manifest of a checkpoint");
    if (json.at("schema") != kSchema) {
      refuse(base::str("it is of schema ", json["schema"].dump(), ", this program reads ", kSchema,
                       ": read it with the version that wrote it"));
    }
    Manifest manifest{.step = count_of(json.at("step")),
                      .saved_at = json.at("saved_at"),
                      .config = plan::from_json(json.at("config")),
                      .vocab = count_of(json.at("vocab")),
                      .identity = json.at("identity"),
                      .param_digest = json.at("param_digest"),
                      .world = small_count_of(json.at("world")),
                      .state = json.at("state"),
                      .rank_states = json.at("rank_states"),
                      .index_bytes = count_of(json.at("index").at("bytes")),
                      .index_sha256 = json["index"].at("sha256"),
                      .files = {}};
    std::set<std::string> names;
    for (const Json& part : json.at("files")) {
      manifest.files.push_back(part);
      if (!names.insert(manifest.files.back().name).second) refuse("it lists a file twice");
    }
    return manifest;
  } catch (const Json::exception& error) {
    refuse(base::str("a field is missing or of another type (", error.what(), ")"));
  } catch (const UsageError& error) {
    refuse(base::str("its settings cannot be read: ", error.what()));
  }
}

std::string index_text(const Index& index) {
  return Json{{"tensors", index.tensors}}.dump() + '\n';
}

Index parse_index(std::string_view text, int files) {
  const Json json = Json::parse(base::shallow_json(text), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) refuse("it is no whole JSON object");
  try {
    Index index;
    for (const Json& tensor : json.at("tensors")) {
      index.tensors.push_back(tensor);
      check_cover(index.tensors.back(), files);
    }
    const auto out_of_order = [](const SavedTensor& a, const SavedTensor& b) {
      return key_of(a) >= key_of(b);
    };
    if (std::adjacent_find(index.tensors.begin(), index.tensors.end(), out_of_order) !=
        index.tensors.end()) {
      refuse("its tensors are not in the order of kind and name, or one comes twice");
    }
    return index;
  } catch (const Json::exception& error) {
    refuse(base::str("a field is missing or of another type (", error.what(), ")"));
  }
}

}  // namespace lockstep::checkpoints
