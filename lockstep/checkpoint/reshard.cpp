#include "lockstep/checkpoint/reshard.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/folder.h"
#include "lockstep/checkpoint/part_file.h"
#include "lockstep/checkpoint/reader.h"
#include "lockstep/plan/write_share.h"

namespace lockstep::checkpoints {
namespace {

constexpr int kMostFiles = 1 << 16;
constexpr int64_t kBlock = int64_t{1} << 20;  // elements that are held

SavedTensor whole_of(const SavedTensor& tensor) {
  return {
      .kind = tensor.kind, .name = tensor.name, .shape = tensor.shape, .blocks = {}, .slices = {}};
}

class Writer {
 public:
  explicit Writer(const Reader& reader) : reader_(reader), proof_(reader.proof()) {
    manifest_ = reader.manifest();
    manifest_.files.clear();
    for (const SavedTensor& tensor : reader.index().tensors) {
      index_.add(whole_of(tensor));
      all_.push_back({.param = static_cast<int>(all_.size()), .lo = 0, .hi = tensor.numel()});
    }
  }

  void write(const std::string& folder, int file, int files) {
    std::vector<SliceToWrite> slices;
    for (const plan::Piece& piece : plan::write_share(all_, file, files)) {
      for (int64_t lo = piece.lo; lo < piece.hi; lo += kBlock) {
        slices.push_back(slice_of(piece.param, lo, std::min(piece.hi, lo + kBlock)));
      }
    }
    const PartFile part = write_part(folder, file, slices);
    add_report(report_text(part, slices), manifest_, index_);
  }

  /// Proves all that was read, and that what was written is of the same model.
  void commit(const std::string& folder, const std::string& to) {
    reader_.prove_padding(proof_);
    reader_.check(proof_);
    plan::Digest params;
    for (const PartFile& part : manifest_.files) params.add(part.params);
    if (params.text() != manifest_.param_digest) {
      throw StateError(base::str(reader_.folder(), ": its parameters have digest ", params.text(),
                                 ", the manifest says ", manifest_.param_digest, "."));
    }
    commit_folder(folder, to, manifest_, index_);
  }

 private:
  SliceToWrite slice_of(int tensor, int64_t lo, int64_t hi) {
    const SavedTensor& saved = reader_.index().tensors[static_cast<size_t>(tensor)];
    return {.tensor = whole_of(saved),
            .grain = 0,
            .lo = lo,
            .hi = hi,
            .values = [this, &saved, lo, hi]() -> const float* {
              block_.resize(static_cast<size_t>(hi - lo));
              reader_.read_logical(saved.kind, saved.name, lo, hi - lo, block_.data(), &proof_);
              return block_.data();
            }};
  }

  const Reader& reader_;
  ReadProof proof_;
  Manifest manifest_;
  Index index_;
  std::vector<plan::Piece> all_;  // a piece a tensor
  std::vector<float> block_;
};

}  // namespace

Manifest reshard(const std::string& from, const std::string& to, int files) {
  if (files < 1 || files > kMostFiles) {
    throw UsageError(base::str("a checkpoint has 1 to 65,536 files, not ", files, "."));
  }
  std::error_code error;
  if (std::filesystem::exists(to, error)) {
    throw UsageError(base::str(to, " is there already: nothing is written over it."));
  }
  const Reader reader(from);
  Writer writer(reader);
  const std::string unfinished = begin_folder(to);
  try {
    for (int file = 0; file < files; ++file) writer.write(unfinished, file, files);
    writer.commit(unfinished, to);
  } catch (const Error&) {
    discard_folder(unfinished);
    throw;
  }
  return read_manifest(to);
}

}  // namespace lockstep::checkpoints
