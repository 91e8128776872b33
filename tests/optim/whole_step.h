/// A step of an optimizer with trust ratios where each span is a whole parameter.
#pragma once

#include <cmath>
#include <utility>
#include <vector>

#include "lockstep/optim/trust_updater.h"
#include "lockstep/plan/norm_chunks.h"

namespace lockstep::optim {

/// `counts` are the spans' elements; spans [first, end) of `params` are one parameter; of none,
/// each is one.
inline void whole_step(TrustUpdater& optimizer, const std::vector<int64_t>& counts, double lr,
                       double grad_scale = 1, std::vector<std::pair<size_t, size_t>> params = {}) {
  if (params.empty()) {
    for (size_t i = 0; i < counts.size(); ++i) params.emplace_back(i, i + 1);
  }
  std::vector<double> weights, updates;
  std::vector<size_t> starts;
  for (const int64_t count : counts) {
    starts.push_back(weights.size());
    weights.resize(weights.size() +
                   static_cast<size_t>((count + plan::kNormChunk - 1) / plan::kNormChunk));
  }
  starts.push_back(weights.size());
  updates.resize(weights.size());
  std::vector<ChunkSums> sums;
  for (size_t i = 0; i < counts.size(); ++i) {
    sums.push_back({weights.data() + starts[i], updates.data() + starts[i]});
  }
  optimizer.measure(grad_scale, sums);
  std::vector<TrustNorms> norms;
  for (const auto& [first, end] : params) {
    const auto norm = [&](const std::vector<double>& of) {
      return std::sqrt(plan::tree_sum(of.data() + starts[first],
                                      static_cast<int64_t>(starts[end] - starts[first])));
    };
    norms.insert(norms.end(), end - first, {norm(weights), norm(updates)});
  }
  optimizer.set_norms(norms);
  optimizer.step(lr, grad_scale);
}

}  // namespace lockstep::optim
