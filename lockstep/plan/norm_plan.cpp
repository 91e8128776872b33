#include "lockstep/plan/norm_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "lockstep/base/assert.h"

namespace lockstep::plan {
namespace {

/// The maximal whole subtrees of a run of chunks, in the trees of the sums that it touches.
void collect_nodes(const NormChunks& chunks, LeafRange run, std::vector<LeafRange>& nodes) {
  auto sum = static_cast<size_t>(std::upper_bound(chunks.ends.begin(), chunks.ends.end(), run.lo) -
                                 chunks.ends.begin());
  while (run.size() > 0) {
    const auto lo = static_cast<int>(chunks.begin_of(sum));
    const auto hi = static_cast<int>(chunks.ends[sum++]);
    const int end = std::min(run.hi, hi);
    for (const LeafRange node : maximal_subtrees(hi - lo, {run.lo - lo, end - lo})) {
      nodes.push_back({node.lo + lo, node.hi + lo});
    }
    run.lo = end;
  }
}

/// The same of all chunks that a rank owns.
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
    collect_nodes(chunks, run, nodes);
  }
  return nodes;
}

/// The additions of every sum over its nodes, which are `rising`.
void add_up(NormPlan& plan, const std::vector<LeafRange>& rising) {
  size_t next = 0;
  for (size_t sum = 0; sum < plan.chunks.ends.size(); ++sum) {
    const auto lo = static_cast<int>(plan.chunks.begin_of(sum));
    const auto hi = static_cast<int>(plan.chunks.ends[sum]);
    const auto first = static_cast<int>(next);
    std::vector<LeafRange> terms;
    for (; next < rising.size() && rising[next].lo < hi; ++next) {
      terms.push_back({rising[next].lo - lo, rising[next].hi - lo});
    }
    plan.results.push_back(terms.empty() ? -1 : first);
    if (terms.empty()) continue;
    for (const AddStep step : evaluation(hi - lo, terms)) {
      plan.additions.push_back({step.into + first, step.from + first});
    }
  }
}

}  // namespace

std::vector<int64_t> NormPlan::counts() const {
  std::vector<int64_t> counts;
  for (const auto& of_rank : nodes) counts.push_back(std::ssize(of_rank));
  return counts;
}

NormPlan plan_norm(const ParamTable& table, const ShardLayout& layout, NormSums sums) {
  std::vector<std::vector<Piece>> owned;
  for (int rank = 0; rank < layout.options.ranks; ++rank) owned.push_back(layout.pieces(rank));
  return plan_norm(table, owned, sums);
}

NormPlan plan_norm(const ParamTable& table, const std::vector<std::vector<Piece>>& owned,
                   NormSums sums) {
  NormPlan plan{.chunks = plan_norm_chunks(table, sums),
                .nodes = {},
                .place = {},
                .additions = {},
                .results = {}};
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
  add_up(plan, rising);
  return plan;
}

}  // namespace lockstep::plan
