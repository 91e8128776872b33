#include "lockstep/parallel/norm/running_values.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "lockstep/base/assert.h"

namespace lockstep::parallel {
namespace {

/// The sum over a node of the tree all of whose leaves are here.
at::Tensor node(const std::map<int, at::Tensor>& leaves, int lo, int hi) {
  if (hi - lo == 1) return leaves.at(lo);
  const int mid = plan::split(lo, hi);
  return node(leaves, lo, mid) + node(leaves, mid, hi);
}

/// Runs of neighbours: what a rank holds is several of them where leaves go round the ranks.
std::vector<plan::LeafRange> runs_of(const std::map<int, at::Tensor>& leaves) {
  std::vector<plan::LeafRange> runs;
  for (const auto& [leaf, sum] : leaves) {
    if (!runs.empty() && runs.back().hi == leaf) {
      ++runs.back().hi;
    } else {
      runs.push_back({leaf, leaf + 1});
    }
  }
  return runs;
}

}  // namespace

int RunningValues::add(at::Tensor mean, at::Tensor variance) {
  layers_.push_back({std::move(mean), std::move(variance)});
  return static_cast<int>(layers_.size()) - 1;
}

void RunningValues::see(int layer, int leaf, int micro, const Moments& moments) {
  seen_[{leaf, micro}][layer] = moments;
}

/// Micro-batches, then mean and variance of each layer.
std::map<int, at::Tensor> RunningValues::sums_by_leaf() const {
  std::map<int, at::Tensor> sums;
  for (const auto& [micro_batch, by_layer] : seen_) {
    LOCKSTEP_ASSERT(by_layer.size() == layers_.size(), "every layer sees every micro-batch");
    std::vector<at::Tensor> parts = {at::full({1}, 1.0, at::kDouble)};
    for (const auto& [layer, moments] : by_layer) {
      parts.push_back(moments.mean);
      parts.push_back(moments.unbiased_variance());
    }
    const auto [sum, is_first] = sums.emplace(micro_batch.first, at::cat(parts));
    if (!is_first) sum->second = sum->second + at::cat(parts);
  }
  return sums;
}

void RunningValues::update(ProcessGroup& group, int leaves) {
  if (layers_.empty()) return;
  int64_t numbers = 1;
  for (const Layer& layer : layers_) numbers += 2 * layer.mean.numel();
  const std::map<int, at::Tensor> held = sums_by_leaf();
  std::vector<LeafTerm> terms;
  for (const plan::LeafRange& run : runs_of(held)) {
    for (const plan::LeafRange& range : plan::maximal_subtrees(leaves, run)) {
      terms.push_back({range, node(held, range.lo, range.hi).contiguous()});
    }
  }
  const at::Tensor total = at::zeros({numbers}, at::kDouble);
  group.all_reduce(std::move(terms), leaves, total).wait();
  const double micro_batches = total.data_ptr<double>()[0];
  int64_t at = 1;
  const auto follow = [&](const at::Tensor& running) {
    const at::Tensor newest = total.narrow(0, at, running.numel()) / micro_batches;
    running.copy_(running.to(at::kDouble).mul_(1 - momentum_).add_(newest, momentum_));
    at += running.numel();
  };
  for (const Layer& layer : layers_) {
    follow(layer.mean);
    follow(layer.variance);
  }
  forget();
}

}  // namespace lockstep::parallel
