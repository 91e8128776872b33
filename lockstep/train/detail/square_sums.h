/// Sums of squares over parameters whose pieces lie on many ranks: the same bits whoever owns what,
/// and on every rank, also on one that owns nothing. Who measures fills the sums of chunks; one
/// all-gather brings those of all ranks, of all sums and kinds, together.
///
/// Moves   plan/norm_plan.h, for each kind
#pragma once

#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/plan/norm_plan.h"
#include "lockstep/train/model_parts.h"

namespace lockstep::detail {

class SquareSums {
 public:
  /// `group` has the ranks of the layout; null: this rank owns all. `kinds` of things are summed.
  SquareSums(const plan::ParamTable& table, const plan::ShardLayout& layout, ProcessGroup* group,
             plan::NormSums sums, int kinds);
  /// `group` has the ranks that together hold a replica, each a part of the model.
  SquareSums(const ModelParts& parts, ProcessGroup& group, plan::NormSums sums, int kinds);

  /// That this rank brings, of parameters as it numbers them.
  const std::vector<plan::Piece>& pieces() const { return pieces_; }
  /// Where the sums of a piece's chunks go; `piece` counts `pieces()`.
  double* chunks_of(size_t piece, int kind);
  /// The sum that a parameter of this rank's table is part of; -1: it is not trained.
  int sum_of(int param) const;

  /// A collective: the sums of a kind, in their order; of one that nobody has any of, 0.
  std::vector<std::vector<double>> exchange();

 private:
  ProcessGroup* group_;
  int rank_;
  std::vector<plan::Piece> pieces_;
  std::vector<plan::Piece> places_;  // the same as `plan_` numbers them
  std::vector<int> names_;           // by parameter of this rank: as `plan_` numbers it
  plan::NormPlan plan_;
  std::vector<std::vector<double>> chunk_sums_;  // by kind
};

}  // namespace lockstep::detail
