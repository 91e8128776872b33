#include "lockstep/checkpoint/part_file.h"

#include <cstdio>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/files/safetensors.h"
#include "lockstep/files/sha256.h"

namespace lockstep::checkpoints {

void add_params(plan::Digest& digest, const SavedTensor& tensor, int grain, int64_t lo, int64_t hi,
                const float* values) {
  if (tensor.kind != kParam && tensor.kind != kRunning) return;
  for (const plan::LogicalRun& run : plan::logical_runs(tensor.grain_param(grain), lo, hi)) {
    if (run.first < 0) continue;
    digest.add(tensor.name, run.first, values + (run.lo - lo), run.size());
  }
}

std::string part_name(int rank) {
  char name[40];
  std::snprintf(name, sizeof name, "part_%04d.safetensors", rank);
  return name;
}

PartFile write_part(const std::string& folder, int rank, const std::vector<SliceToWrite>& slices) {
  PartFile part;
  part.name = part_name(rank);
  std::vector<files::TensorEntry> entries;
  for (const SliceToWrite& slice : slices) {
    const std::string name =
        entry_name(slice.tensor, {.grain = slice.grain, .lo = slice.lo, .hi = slice.hi});
    const int64_t count = slice.hi - slice.lo;
    entries.push_back({.name = name,
                       .dtype = "F32",
                       .shape = {count},
                       .data = nullptr,
                       .bytes = count * 4,
                       .bring = [&part, &slice, name, count]() -> const void* {
                         const float* const values = slice.values();
                         part.values.add(name, 0, values, count);
                         part.elements += count;
                         add_params(part.params, slice.tensor, slice.grain, slice.lo, slice.hi,
                                    values);
                         return values;
                       }});
  }
  const std::string path = (std::filesystem::path(folder) / part.name).string();
  files::write_safetensors(path, entries, {{"format", "pt"}});
  const auto written = files::SafetensorsFile::open(path);
  part.header_sha256 = files::sha256_hex(written.header_bytes());
  part.bytes = std::ssize(written.header_bytes()) + part.elements * 4;
  return part;
}

std::string report_text(const PartFile& part, const std::vector<SliceToWrite>& slices) {
  Index own;
  for (const SliceToWrite& slice : slices) {
    if (own.tensors.empty() || key_of(own.tensors.back()) != key_of(slice.tensor)) {
      own.tensors.push_back(slice.tensor);
    }
    own.tensors.back().slices.push_back({.grain = slice.grain, .lo = slice.lo, .hi = slice.hi});
  }
  return nlohmann::json{{"part", part}, {"tensors", own.tensors}}.dump();
}

void add_report(const std::string& report, Manifest& manifest, Index& index) {
  try {
    const auto json = nlohmann::json::parse(report);
    const int file = static_cast<int>(manifest.files.size());
    manifest.files.push_back(json.at("part"));
    for (SavedTensor tensor : json.at("tensors").get<std::vector<SavedTensor>>()) {
      for (SavedSlice& slice : tensor.slices) slice.file = file;
      index.add(tensor);
    }
  } catch (const nlohmann::json::exception& error) {
    throw StateError(
        base::str("a rank's report on its part of a checkpoint cannot be read: ", error.what()));
  }
}

}  // namespace lockstep::checkpoints
