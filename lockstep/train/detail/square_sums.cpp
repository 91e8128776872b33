#include "lockstep/train/detail/square_sums.h"

#include <ATen/ops/empty.h>

#include <numeric>

#include "lockstep/base/planted_fault.h"

namespace lockstep::detail {

SquareSums::SquareSums(const plan::ParamTable& table, const plan::ShardLayout& layout,
                       ProcessGroup* group, plan::NormSums sums, int kinds)
    : group_(group),
      rank_(group != nullptr ? group->rank() : 0),
      pieces_(layout.pieces(rank_)),
      places_(pieces_),
      names_(table.params.size()),
      plan_(plan::plan_norm(table, layout, sums)),
      chunk_sums_(static_cast<size_t>(kinds),
                  std::vector<double>(static_cast<size_t>(plan_.chunks.chunks))) {
  std::iota(names_.begin(), names_.end(), 0);
}

SquareSums::SquareSums(const ModelParts& parts, ProcessGroup& group, plan::NormSums sums, int kinds)
    : group_(&group),
      rank_(group.rank()),
      pieces_(parts.counted),
      places_(parts.owned[static_cast<size_t>(rank_)]),
      names_(parts.held[static_cast<size_t>(rank_)]),
      plan_(plan::plan_norm(parts.whole, parts.owned, sums)),
      chunk_sums_(static_cast<size_t>(kinds),
                  std::vector<double>(static_cast<size_t>(plan_.chunks.chunks))) {}

double* SquareSums::chunks_of(size_t piece, int kind) {
  const plan::Piece& place = places_[piece];
  return chunk_sums_[static_cast<size_t>(kind)].data() +
         plan_.chunks.first_chunk[static_cast<size_t>(place.param)] + place.lo / plan::kNormChunk;
}

int SquareSums::sum_of(int param) const {
  return plan_.chunks.sum[static_cast<size_t>(names_[static_cast<size_t>(param)])];
}

std::vector<std::vector<double>> SquareSums::exchange() {
  const size_t kinds = chunk_sums_.size();
  const size_t sums = plan_.results.size();
  std::vector<std::vector<double>> totals(kinds, std::vector<double>(sums));
  if (base::planted(base::Fault::own_norm)) {
    for (size_t kind = 0; kind < kinds; ++kind) {
      for (size_t sum = 0; sum < sums; ++sum) {
        const int64_t first = plan_.chunks.begin_of(sum);
        totals[kind][sum] =
            plan::tree_sum(chunk_sums_[kind].data() + first, plan_.chunks.ends[sum] - first);
      }
    }
    return totals;
  }
  if (plan_.place.empty()) return totals;  // no rank owns anything
  // A rank's nodes of the first kind, then of the next.
  const std::vector<int64_t> counts = plan_.counts();
  const auto own = static_cast<size_t>(rank_);
  at::Tensor mine = at::empty({counts[own] * static_cast<int64_t>(kinds)}, at::kDouble);
  double* node_sum = mine.data_ptr<double>();
  for (const std::vector<double>& of_kind : chunk_sums_) {
    for (const plan::LeafRange node : plan_.nodes[own]) {
      *node_sum++ = plan::tree_sum(of_kind.data() + node.lo, node.size());
    }
  }
  at::Tensor all = mine;
  if (group_ != nullptr) {
    std::vector<int64_t> sizes = counts;
    for (int64_t& size : sizes) size *= static_cast<int64_t>(kinds);
    all = at::empty({std::accumulate(sizes.begin(), sizes.end(), int64_t{0})}, at::kDouble);
    group_->all_gather_uneven(mine, all, sizes).wait();
  }
  std::vector<double> rising(plan_.place.size());
  for (size_t kind = 0; kind < kinds; ++kind) {
    const double* of_rank = all.data_ptr<double>();
    size_t node = 0;
    for (const int64_t count : counts) {
      for (int64_t i = 0; i < count; ++i) {
        rising[static_cast<size_t>(plan_.place[node++])] =
            of_rank[static_cast<int64_t>(kind) * count + i];
      }
      of_rank += static_cast<int64_t>(kinds) * count;
    }
    for (const plan::AddStep step : plan_.additions) {
      rising[static_cast<size_t>(step.into)] += rising[static_cast<size_t>(step.from)];
    }
    if (base::planted(base::Fault::norm_counts_twice)) rising[0] += rising.back();
    for (size_t sum = 0; sum < sums; ++sum) {
      const int place = plan_.results[sum];
      totals[kind][sum] = place < 0 ? 0 : rising[static_cast<size_t>(place)];
    }
  }
  return totals;
}

}  // namespace lockstep::detail
