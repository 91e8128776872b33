#include "lockstep/parallel/tensor/grain_sum.h"

#include <ATen/ops/empty.h>

#include "lockstep/base/assert.h"
#include "lockstep/base/planted_fault.h"

namespace lockstep::parallel {
namespace {

/// Depth first, so that finished halves are added before the next part is made.
at::Tensor fold(plan::LeafRange node, const GrainPart& part) {
  if (node.size() == 1) return part(node.lo);
  const int mid = plan::split(node.lo, node.hi);
  at::Tensor sum = fold({node.lo, mid}, part);
  return sum.add_(fold({mid, node.hi}, part));
}

std::vector<LeafTerm> own_terms(const TensorGroup& group, const GrainPart& part) {
  std::vector<LeafTerm> terms;
  for (const plan::LeafRange node : plan::maximal_subtrees(group.grains(), group.place.local)) {
    terms.push_back({node, fold(node, part)});
  }
  return terms;
}

bool alone(const TensorGroup& group) { return group.tp == nullptr || group.tp->size() == 1; }

at::Tensor fold_all(const TensorGroup& group, const GrainPart& part) {
  return fold({0, group.grains()}, part);
}

/// Elements of each rank's slices in a tensor of `of_slice` elements a slice.
std::vector<int64_t> slice_counts(const plan::TensorPlace& place, int64_t of_slice) {
  std::vector<int64_t> counts;
  for (const plan::LeafRange run : place.by_rank) counts.push_back(run.size() * of_slice);
  return counts;
}

}  // namespace

at::Tensor Pending::wait() {
  if (work_) work_->wait();
  return tensor_;
}

Pending sum_grains(const TensorGroup& group, const GrainPart& part) {
  if (alone(group)) return Pending(fold_all(group, part));
  std::vector<LeafTerm> terms = own_terms(group, part);
  at::Tensor result = terms.front().value;
  return {result, group.tp->all_reduce(std::move(terms), group.grains(), result)};
}

Pending sum_slices(const TensorGroup& group, const GrainPart& part) {
  if (!group.place.sequence) return Pending(fold_all(group, part));
  return base::planted(base::Fault::missing_norm_sum) ? own_part(group, part, /*joins=*/false)
                                                      : sum_grains(group, part);
}

Pending join_grains(const TensorGroup& group, const GrainPart& part) {
  if (alone(group) || !group.place.sequence) return sum_grains(group, part);
  std::vector<LeafTerm> terms = own_terms(group, part);
  const at::Tensor& term = terms.front().value;
  LOCKSTEP_ASSERT(term.size(0) == group.grains(), "what is joined has a token slice a grain");
  std::vector<int64_t> shape = term.sizes().vec();
  shape[0] = group.local();
  at::Tensor own = at::empty(shape, term.options());
  std::vector<int64_t> counts = slice_counts(group.place, term.numel() / group.grains());
  return {own, group.tp->reduce_scatter_uneven(std::move(terms), group.grains(), own,
                                               std::move(counts))};
}

Pending own_part(const TensorGroup& group, const GrainPart& part, bool joins) {
  at::Tensor sum;
  for (const LeafTerm& term : own_terms(group, part)) {
    sum = sum.defined() ? sum.add_(term.value) : term.value;
  }
  return Pending(joins && group.place.sequence
                     ? sum.narrow(0, group.place.local.lo, group.local()).clone()
                     : sum);
}

Pending whole_of(const TensorGroup& group, const at::Tensor& x) {
  if (alone(group) || !group.place.sequence) return Pending(x);
  LOCKSTEP_ASSERT(x.size(0) == group.local(), "a rank has a token slice for each of its grains");
  std::vector<int64_t> shape = x.sizes().vec();
  shape[0] = group.grains();
  at::Tensor whole = at::empty(shape, x.options());
  std::vector<int64_t> counts = slice_counts(group.place, x.numel() / group.local());
  return {whole, group.tp->all_gather_uneven(x.contiguous(), whole, std::move(counts))};
}

}  // namespace lockstep::parallel
