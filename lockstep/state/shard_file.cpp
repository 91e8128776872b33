#include "lockstep/state/shard_file.h"

namespace lockstep::state {
namespace {

int64_t pages(int64_t bytes) {
  constexpr int64_t kPage = files::BlockFile::kAlignment;
  return (bytes + kPage - 1) / kPage * kPage;
}

std::vector<int64_t> places(const plan::ShardLayout& layout, int rank) {
  std::vector<int64_t> at = {0};
  for (size_t u = 0; u < layout.units.size(); ++u) {
    const int unit = static_cast<int>(u);
    const int64_t numel =
        layout.owned(unit, rank, true).size() + layout.owned(unit, rank, false).size();
    at.push_back(at.back() + pages(numel * 4));
  }
  return at;
}

}  // namespace

ShardFile::ShardFile(const plan::ShardLayout& layout, int rank, const std::string& folder,
                     int64_t moment_bytes)
    : unit_at_(places(layout, rank)),
      moments_at_(unit_at_.back()),
      file_(folder, moments_at_ + pages(moment_bytes)) {}

}  // namespace lockstep::state
