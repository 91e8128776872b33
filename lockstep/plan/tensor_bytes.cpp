#include "lockstep/plan/tensor_bytes.h"

#include <algorithm>
#include <vector>

#include "lockstep/plan/sum_plan.h"

namespace lockstep::plan {
namespace {

constexpr int64_t kFloat = 4;

/// What each kind of collective moves on one rank of the group.
class Mover {
 public:
  explicit Mover(const TensorPlace& place)
      : place_(place),
        ranks_(static_cast<int>(place.by_rank.size())),
        rank_(static_cast<int>(std::find(place.by_rank.begin(), place.by_rank.end(), place.local) -
                               place.by_rank.begin())) {
    std::vector<std::vector<LeafRange>> grains, ranks;
    for (int r = 0; r < ranks_; ++r) {
      grains.push_back(maximal_subtrees(place.grains, place.by_rank[static_cast<size_t>(r)]));
      ranks.push_back({{r, r + 1}});
    }
    over_grains_ = plan_sum(place.grains, grains);
    over_ranks_ = plan_sum(ranks_, ranks);
  }

  /// A sum over grains; `elements` of a term.
  int64_t all_reduce(int64_t elements) const {
    return all_reduce_bytes(over_grains_, rank_, elements, kFloat);
  }
  int64_t max(int64_t elements) const {
    return all_reduce_bytes(over_ranks_, rank_, elements, kFloat);
  }
  int64_t reduce_scatter(int64_t elements) const {
    return direct_reduce_scatter_bytes(over_grains_, rank_, counts(elements), kFloat);
  }
  int64_t all_gather(int64_t elements) const {
    return direct_all_gather_bytes(rank_, counts(elements), kFloat);
  }

 private:
  std::vector<int64_t> counts(int64_t elements) const {
    std::vector<int64_t> result;
    for (const LeafRange run : place_.by_rank) {
      result.push_back(run.size() * (elements / place_.grains));
    }
    return result;
  }

  const TensorPlace& place_;
  int ranks_;
  int rank_;
  SumPlan over_grains_;
  SumPlan over_ranks_;
};

}  // namespace

TensorBytes tensor_bytes(const TensorShape& shape, const TensorPlace& place) {
  if (place.by_rank.size() == 1) return {};
  const Mover moves(place);
  const int64_t tokens = shape.batch * shape.sequence;
  const int64_t stream = tokens * shape.width;
  const int64_t join = place.sequence ? moves.reduce_scatter(stream) : moves.all_reduce(stream);
  const int64_t gather = place.sequence ? moves.all_gather(stream) : 0;
  const int64_t gather_again = shape.gather_again ? gather : 0;
  const int64_t norm =
      place.sequence ? moves.all_reduce((shape.norm_bias ? 2 : 1) * shape.width) : 0;

  const int64_t layer_forward = 2 * (gather + join);
  const int64_t layer_backward = 2 * (gather + join + gather_again + norm);
  TensorBytes bytes{shape.layers * layer_forward, shape.layers * layer_backward};
  if (shape.recompute_blocks) bytes.backward += shape.layers * layer_forward;
  if (shape.embeds) {
    bytes.forward += join;
    bytes.backward += gather;
    if (shape.positions && place.sequence) {
      bytes.backward += moves.all_gather(shape.sequence * shape.width);
    }
  }
  if (shape.heads) {
    bytes.forward += gather;
    const int64_t rows = shape.loss_rows > 0 ? shape.loss_rows : tokens;
    for (int64_t done = 0; done < tokens; done += rows) {
      const int64_t now = std::min(rows, tokens - done);
      bytes.forward += moves.max(now) + moves.all_reduce(2 * now);
    }
    (shape.loss_rows > 0 ? bytes.forward : bytes.backward) += join;
    bytes.backward += norm + (shape.loss_rows > 0 ? 0 : gather_again);
  }
  return bytes;
}

}  // namespace lockstep::plan
