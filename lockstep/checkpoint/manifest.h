/// What a checkpoint folder holds: the manifest says which files, how large and with which digests,
/// and of which run; the index where each run of elements of each logical tensor lies.
///
///   step_00000020/
///     part_0000.safetensors ...   a file for each rank that writes, with the slices it owns
///     index.json                  logical tensor -> slices
///     manifest.json               written last; a folder without it is no checkpoint
///
/// Each of the two is the one text that its contents can have: a byte that is another one is either
/// no such text or has another digest. The digests of a part's values are sums over elements
/// (plan/digest.h): ranks that each read some of a file prove all of it together, and nobody reads
/// a byte twice.
///
/// Source  docs/concepts/checkpoints.md
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "lockstep/plan/digest.h"
#include "lockstep/plan/optimizers.h"
#include "lockstep/plan/param_table.h"
#include "lockstep/plan/train_config.h"

namespace lockstep::checkpoints {

inline constexpr int kSchema = 1;
inline constexpr const char* kManifestFile = "manifest.json";
inline constexpr const char* kIndexFile = "index.json";
/// The kinds of tensor besides an optimizer's moments (plan/optimizers.h).
inline constexpr const char* kParam = "param";      // masters, fp32
inline constexpr const char* kAverage = "average";  // their moving average
inline constexpr const char* kRunning = "running";  // of normalised layers

/// "exp_avg", "exp_avg_sq", "momentum": what an optimizer calls its moments.
std::string moment_kind(plan::Optimizer optimizer, int moment);

/// A file of one rank.
struct PartFile {
  std::string name;
  int64_t bytes = 0;
  std::string header_sha256;  // of what stands before the values
  plan::Digest values;        // of all values, by entry and place in it
  int64_t elements = 0;
  plan::Digest
      params;  // of masters and running values, by logical tensor: part of the run's digest
  bool operator==(const PartFile&) const = default;
};

struct Manifest {
  int64_t step = 0;      // steps done
  std::string saved_at;  // "2024-05-01T12:00:00Z"
  plan::TrainConfig config;
  int64_t vocab = 0;
  std::string identity;  // plan::NumericIdentity::text
  std::string param_digest;
  int world = 0;                         // ranks of the run
  nlohmann::json state;                  // what else the run goes on from (train/run_state.h)
  std::vector<std::string> rank_states;  // a user's own, by rank; empty: there are none
  int64_t index_bytes = 0;
  std::string index_sha256;
  std::vector<PartFile> files;

  int64_t bytes() const;  // of index and parts
};

/// Elements lo <= i < hi of a tensor grain, in the part file `file`.
struct SavedSlice {
  int file = 0;
  int grain = 0;
  int64_t lo = 0;
  int64_t hi = 0;
  auto operator<=>(const SavedSlice&) const = default;
};

/// A logical tensor of one kind, and how it was cut into grains when it was saved.
struct SavedTensor {
  std::string kind;
  std::string name;  // logical
  std::vector<int64_t> shape;
  int dim = 0;                  // of the cut
  std::vector<int64_t> blocks;  // empty: it is whole
  int grains = 1;
  std::vector<SavedSlice> slices;  // by grain and place; they cover every grain exactly once

  /// The grain as plan/param_table.h knows it: what its elements are of the logical tensor.
  plan::Param grain_param(int grain) const;
  int64_t numel() const;  // of the logical tensor
};

/// By kind, then name.
inline std::pair<std::string_view, std::string_view> key_of(const SavedTensor& tensor) {
  return {tensor.kind, tensor.name};
}

struct Index {
  std::vector<SavedTensor> tensors;  // by key_of
  const SavedTensor* find(const std::string& kind, const std::string& name) const;
  /// Slices of a tensor, which may be there already.
  void add(const SavedTensor& tensor);
};

/// "[64, 24]".
std::string shape_text(const std::vector<int64_t>& shape);
/// The tensor's name in its part file: "param/h.0.attn.c_attn.weight@1[0:4096]".
std::string entry_name(const SavedTensor& tensor, const SavedSlice& slice);

// nlohmann's conversions; from_json throw its exceptions, or StateError.
void to_json(nlohmann::json& json, const PartFile& part);
void from_json(const nlohmann::json& json, PartFile& part);
void to_json(nlohmann::json& json, const SavedTensor& tensor);
void from_json(const nlohmann::json& json, SavedTensor& tensor);

std::string manifest_text(const Manifest& manifest);
std::string index_text(const Index& index);
/// Throw StateError with the reason alone: the caller knows the file's name. Of an index: unless
/// its slices, in `files` files, hold every element exactly once.
Manifest parse_manifest(std::string_view text);
Index parse_index(std::string_view text, int files);

}  // namespace lockstep::checkpoints
