/// The file in which a rank's shards of parameters live, and the moments of its optimizer: one
/// BlockFile, where everything has its place from the start.
///
///   | unit 0: trained, frozen | unit 1 ... | moments |      each part from a whole page on
///
/// Holds   nothing in memory; 4 bytes an element of the shards and what the moments take, on disk
#pragma once

#include <string>
#include <vector>

#include "lockstep/files/block_file.h"
#include "lockstep/plan/shard_layout.h"

namespace lockstep::state {

class ShardFile {
 public:
  /// In `folder`, for `rank`'s shards of all units and `moment_bytes` behind them. Throws as
  /// BlockFile does.
  ShardFile(const plan::ShardLayout& layout, int rank, const std::string& folder,
            int64_t moment_bytes);

  files::BlockFile& file() { return file_; }
  /// Where this rank's shard of a unit begins: bytes; the part that is not trained follows the one
  /// that is.
  int64_t shard_at(int unit) const { return unit_at_[static_cast<size_t>(unit)]; }
  int64_t moments_at() const { return moments_at_; }

 private:
  std::vector<int64_t> unit_at_;
  int64_t moments_at_ = 0;
  files::BlockFile file_;
};

}  // namespace lockstep::state
