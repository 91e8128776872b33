/// Reads what it needs of a checkpoint, on whatever layout it was saved and whoever asks.
///
/// Opening checks manifest and index, that every part file is there with the size and the header
/// that the manifest states, and that their digests make the model's. Values are proven by those
/// who read them: a reader adds what it has read to digests that are sums over elements, and ranks
/// that together read all of a file compare their sum with the manifest's.
///
/// Moves   the bytes asked for, once            test: ReaderTest.ReadsWhatItIsAskedFor
/// Holds   no file in memory; of a tensor that was cut otherwise, a list of its runs
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/checkpoint/manifest.h"
#include "lockstep/files/safetensors.h"
#include "lockstep/plan/param_table.h"

namespace lockstep::checkpoints {

/// Of the values read so far, by part file.
struct ReadProof {
  std::vector<plan::Digest> values;
  std::vector<int64_t> elements;
};

class Reader {
 public:
  /// Throws StateError naming the file and what is wrong.
  explicit Reader(const std::string& folder);

  const std::string& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }
  const Index& index() const { return index_; }

  /// Elements lo <= i < hi of a parameter's tensor, which may be a grain, in whatever grains it was
  /// saved; padding reads as 0 where it was not saved in the same ones. `proof`: what it is added
  /// to. Throws StateError: the checkpoint has no such tensor, or one of another shape.
  void read(const std::string& kind, const plan::Param& param, int64_t lo, int64_t hi, float* out,
            ReadProof* proof = nullptr) const;
  /// The same of the logical tensor.
  void read_logical(const std::string& kind, const std::string& name, int64_t first, int64_t count,
                    float* out, ReadProof* proof = nullptr) const;

  ReadProof proof() const;  // of nothing
  /// Adds the padding of grains, which nobody reads who reads logical tensors.
  void prove_padding(ReadProof& proof) const;
  /// Throws StateError naming the first file whose values are not all there or not the manifest's.
  void check(const ReadProof& proof) const;
  /// Reads everything and checks it, and that the model has the digest that the manifest states.
  void verify() const;

  /// Bytes of values read so far.
  int64_t bytes_read() const { return bytes_read_; }

 private:
  struct Run {  // elements of the logical tensor
    int64_t first = 0;
    int64_t size = 0;
    const SavedSlice* slice = nullptr;
    int64_t at = 0;  // in the slice
  };
  void require_param_digest(const plan::Digest& params) const;
  const SavedTensor& find(const std::string& kind, const std::string& name,
                          const std::vector<int64_t>& shape) const;
  void read_slice(const SavedTensor& tensor, const SavedSlice& slice, int64_t at, int64_t count,
                  float* out, ReadProof* proof) const;
  const std::vector<Run>& runs_of(const SavedTensor& tensor) const;

  std::string folder_;
  Manifest manifest_;
  Index index_;
  std::vector<files::SafetensorsFile> files_;
  mutable std::map<const SavedTensor*, std::vector<Run>> runs_;
  mutable int64_t bytes_read_ = 0;
};

}  // namespace lockstep::checkpoints
