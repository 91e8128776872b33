#include "lockstep/plan/norm_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "lockstep/base/assert.h"

namespace lockstep::plan {
namespace {

/// The maximal whole subtrees of the chunks that a rank owns.
std::vector<LeafRange> nodes_of(const NormChunks& chunks, const std::vector<Piece>& pieces) {
  std::vector<LeafRange> runs;
  for (const Piece& piece : pieces) {
    LOCKSTEP_ASSERT(piece.lo % kNormChunk == 0, "no chunk is divided");
    const int64_t first = chunks.first_chunk[static_cast<size_t>(piece.param)];
    runs.push_back({static_cast<int>(first + piece.lo / kNormChunk),
                    static_cast<int>(first + (piece.hi + kNormChunk - 1) / kNormChunk)});
  }
  std::sort(runs.begin(), runs.end());
  std::vector<LeafRange> nodes;
  for (size_t i = 0; i < runs.size();) {
    LeafRange run = runs[i++];
    while (i < runs.size() && runs[i].lo == run.hi) run.hi = runs[i++].hi;
    const auto whole = maximal_subtrees(static_cast<int>(chunks.chunks), run);
    nodes.insert(nodes.end(), whole.begin(), whole.end());
  }
  return nodes;
}

}  // namespace

std::vector<int64_t> NormPlan::counts() const {
  std::vector<int64_t> counts;
  for (const auto& of_rank : nodes) counts.push_back(std::ssize(of_rank));
  return counts;
}

NormPlan plan_norm(const ParamTable& table, const ShardLayout& layout) {
  std::vector<std::vector<Piece>> owned;
  for (int rank = 0; rank < layout.options.ranks; ++rank) owned.push_back(layout.pieces(rank));
  return plan_norm(table, owned);
}

NormPlan plan_norm(const ParamTable& table, const std::vector<std::vector<Piece>>& owned) {
  NormPlan plan{.chunks = plan_norm_chunks(table), .nodes = {}, .place = {}, .additions = {}};
  LOCKSTEP_ASSERT(plan.chunks.chunks < std::numeric_limits<int>::max(),
                  "the sum tree counts its leaves in an int");
  std::vector<LeafRange> all;
  for (const std::vector<Piece>& pieces : owned) {
    plan.nodes.push_back(nodes_of(plan.chunks, pieces));
    all.insert(all.end(), plan.nodes.back().begin(), plan.nodes.back().end());
  }
  std::vector<size_t> order(all.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return all[a] < all[b]; });
  plan.place.resize(all.size());
  std::vector<LeafRange> rising;
  for (const size_t index : order) {
    plan.place[index] = static_cast<int>(rising.size());
    rising.push_back(all[index]);
  }
  if (!rising.empty()) plan.additions = evaluation(static_cast<int>(plan.chunks.chunks), rising);
  return plan;
}

}  // namespace lockstep::plan
