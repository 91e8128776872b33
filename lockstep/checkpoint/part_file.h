/// A rank's file of a checkpoint: the slices it owns, each a tensor of one dimension, fp32.
///
/// Moves   every byte once      Holds   a block of 1 MiB where values are brought piece by piece
///                                      test: PartFileTest.HoldsABlockOnly
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/manifest.h"

namespace lockstep::checkpoints {

/// A slice that a rank writes.
struct SliceToWrite {
  /// Of the logical tensor, without slices.
  SavedTensor tensor;
  int grain = 0;
  int64_t lo = 0;
  int64_t hi = 0;
  /// Its values, asked for once, when it is this slice's turn; good until the next slice's.
  std::function<const float*()> values;
};

/// Adds what the run's digest takes of elements lo <= i < hi of a grain: masters and running
/// values, by logical place.
void add_params(plan::Digest& digest, const SavedTensor& tensor, int grain, int64_t lo, int64_t hi,
                const float* values);

/// "part_0003.safetensors".
std::string part_name(int rank);

/// Writes part_name(rank) into `folder`, whole or not at all. Throws StateError naming the file,
/// the bytes written and the reason.
PartFile write_part(const std::string& folder, int rank, const std::vector<SliceToWrite>& slices);

/// What a rank tells the one that writes the manifest: its file, and what of which tensor is in it.
std::string report_text(const PartFile& part, const std::vector<SliceToWrite>& slices);
/// Adds a rank's file to the manifest, and its slices to the index. Throws StateError if it is no
/// report.
void add_report(const std::string& report, Manifest& manifest, Index& index);

}  // namespace lockstep::checkpoints
