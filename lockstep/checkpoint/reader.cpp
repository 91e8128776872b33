#include "lockstep/checkpoint/reader.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/checkpoint/folder.h"
#include "lockstep/checkpoint/part_file.h"
#include "lockstep/files/sha256.h"

namespace lockstep::checkpoints {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kBlock = int64_t{1} << 20;  // elements that are held of what is only proven

files::SafetensorsFile open_part(const std::string& folder, const PartFile& part) {
  const std::string path = (fs::path(folder) / part.name).string();
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  if (error) {
    throw StateError(base::str("cannot read ", path, ": ", error.message(),
                               ". The checkpoint is not whole without it."));
  }
  if (static_cast<int64_t>(bytes) != part.bytes) {
    throw StateError(base::str(path, " has ", base::with_commas(static_cast<int64_t>(bytes)),
                               " bytes, the manifest says ", base::with_commas(part.bytes),
                               ": it was cut short, or is of another checkpoint."));
  }
  auto file = files::SafetensorsFile::open(path);
  if (files::sha256_hex(file.header_bytes()) != part.header_sha256) {
    throw StateError(base::str(path,
                               " has another header than the manifest says: it is damaged, or "
                               "of another checkpoint."));
  }
  return file;
}

}  // namespace

Reader::Reader(const std::string& folder)
    : folder_(folder), manifest_(read_manifest(folder)), index_(read_index(folder, manifest_)) {
  plan::Digest params;
  for (const PartFile& part : manifest_.files) {
    files_.push_back(open_part(folder, part));
    params.add(part.params);
  }
  require_param_digest(params);
}

void Reader::require_param_digest(const plan::Digest& params) const {
  if (params.text() == manifest_.param_digest) return;
  throw StateError(base::str(folder_, ": its parts are of a model with digest ", params.text(),
                             ", the manifest says ", manifest_.param_digest, "."));
}

const SavedTensor& Reader::find(const std::string& kind, const std::string& name,
                                const std::vector<int64_t>& shape) const {
  const SavedTensor* const tensor = index_.find(kind, name);
  if (tensor == nullptr) {
    std::vector<std::string> names;
    for (const SavedTensor& other : index_.tensors) {
      if (other.kind == kind) names.push_back(other.name);
    }
    const std::string near = base::nearest(name, names);
    throw StateError(base::str(
        folder_, " has no ", kind, " of \"", name, "\"",
        names.empty()  ? base::str(": it was saved without any ", kind, ".")
        : near.empty() ? std::string(": it is of another model.")
                       : base::str(": it is of another model. The nearest is \"", near, "\".")));
  }
  if (tensor->shape != shape) {
    throw StateError(base::str(folder_, ": \"", name, "\" has the shape ",
                               shape_text(tensor->shape), ", the model's has ", shape_text(shape),
                               ": it is of another model."));
  }
  return *tensor;
}

void Reader::read_slice(const SavedTensor& tensor, const SavedSlice& slice, int64_t at,
                        int64_t count, float* out, ReadProof* proof) const {
  const std::string name = entry_name(tensor, slice);
  const auto file = static_cast<size_t>(slice.file);
  files_[file].read_part(name, at * 4, count * 4, out);
  bytes_read_ += count * 4;
  if (proof == nullptr) return;
  proof->values[file].add(name, at, out, count);
  proof->elements[file] += count;
}

void Reader::read(const std::string& kind, const plan::Param& param, int64_t lo, int64_t hi,
                  float* out, ReadProof* proof) const {
  const SavedTensor& tensor = find(kind, plan::logical_name(param), plan::logical_shape(param));
  const plan::TensorSlice& slice = param.slice;
  const bool whole = slice.logical.empty();
  const bool same_cut = whole ? tensor.blocks.empty()
                              : tensor.grains == slice.grains && tensor.dim == slice.dim &&
                                    tensor.blocks == slice.blocks;
  if (!same_cut) {
    for (const plan::LogicalRun& run : plan::logical_runs(param, lo, hi)) {
      float* const to = out + (run.lo - lo);
      if (run.first < 0) {
        std::fill_n(to, run.size(), 0.0F);
      } else {
        read_logical(kind, tensor.name, run.first, run.size(), to, proof);
      }
    }
    return;
  }
  const int grain = whole ? 0 : slice.grain;
  auto next = std::partition_point(
      tensor.slices.begin(), tensor.slices.end(), [&](const SavedSlice& saved) {
        return saved.grain < grain || (saved.grain == grain && saved.hi <= lo);
      });
  while (lo < hi) {
    const int64_t end = std::min(hi, next->hi);
    read_slice(tensor, *next, lo - next->lo, end - lo, out, proof);
    out += end - lo;
    lo = end;
    ++next;
  }
}

const std::vector<Reader::Run>& Reader::runs_of(const SavedTensor& tensor) const {
  std::vector<Run>& runs = runs_[&tensor];
  if (!runs.empty()) return runs;
  for (const SavedSlice& slice : tensor.slices) {
    const plan::Param param = tensor.grain_param(slice.grain);
    for (const plan::LogicalRun& run : plan::logical_runs(param, slice.lo, slice.hi)) {
      if (run.first < 0) continue;
      runs.push_back({run.first, run.size(), &slice, run.lo - slice.lo});
    }
  }
  std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.first < b.first; });
  return runs;
}

void Reader::read_logical(const std::string& kind, const std::string& name, int64_t first,
                          int64_t count, float* out, ReadProof* proof) const {
  const SavedTensor* const tensor = index_.find(kind, name);
  if (tensor == nullptr || first < 0 || count < 0 || first + count > tensor->numel()) {
    throw StateError(base::str(folder_, " has no elements ", first, " to ", first + count, " of ",
                               kind, " \"", name, "\"."));
  }
  const std::vector<Run>& runs = runs_of(*tensor);
  auto next = std::partition_point(
      runs.begin(), runs.end(), [first](const Run& run) { return run.first + run.size <= first; });
  while (count > 0) {
    const int64_t skip = first - next->first;
    const int64_t part = std::min(count, next->size - skip);
    read_slice(*tensor, *next->slice, next->at + skip, part, out, proof);
    out += part;
    first += part;
    count -= part;
    ++next;
  }
}

ReadProof Reader::proof() const {
  return {.values = std::vector<plan::Digest>(files_.size()),
          .elements = std::vector<int64_t>(files_.size(), 0)};
}

void Reader::prove_padding(ReadProof& proof) const {
  std::vector<float> values;
  for (const SavedTensor& tensor : index_.tensors) {
    for (const SavedSlice& slice : tensor.slices) {
      const plan::Param param = tensor.grain_param(slice.grain);
      for (const plan::LogicalRun& run : plan::logical_runs(param, slice.lo, slice.hi)) {
        if (run.first >= 0) continue;
        for (int64_t lo = run.lo; lo < run.hi; lo += kBlock) {
          const int64_t count = std::min(kBlock, run.hi - lo);
          values.resize(static_cast<size_t>(count));
          read_slice(tensor, slice, lo - slice.lo, count, values.data(), &proof);
        }
      }
    }
  }
}

void Reader::check(const ReadProof& proof) const {
  for (size_t file = 0; file < files_.size(); ++file) {
    const PartFile& part = manifest_.files[file];
    const std::string path = (fs::path(folder_) / part.name).string();
    if (proof.elements[file] != part.elements) {
      throw StateError(base::str(path, ": ", base::with_commas(proof.elements[file]), " of its ",
                                 base::with_commas(part.elements),
                                 " values belong to the model: it is of another one."));
    }
    if (proof.values[file] == part.values) continue;
    throw StateError(base::str(path, ": its values have digest ", proof.values[file].text(),
                               ", the manifest says ", part.values.text(),
                               ": the file is damaged, or of another checkpoint."));
  }
}

void Reader::verify() const {
  ReadProof proof = this->proof();
  plan::Digest params;
  std::vector<float> values;
  for (const SavedTensor& tensor : index_.tensors) {
    for (const SavedSlice& slice : tensor.slices) {
      for (int64_t at = 0; at < slice.hi - slice.lo; at += kBlock) {
        const int64_t count = std::min(kBlock, slice.hi - slice.lo - at);
        values.resize(static_cast<size_t>(count));
        read_slice(tensor, slice, at, count, values.data(), &proof);
        const int64_t lo = slice.lo + at;
        add_params(params, tensor, slice.grain, lo, lo + count, values.data());
      }
    }
  }
  check(proof);
  require_param_digest(params);
}

}  // namespace lockstep::checkpoints
