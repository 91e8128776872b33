#include "lockstep/train/noise_scale.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cmath>

#include "lockstep/kernels/norm.h"
#include "lockstep/plan/norm_chunks.h"

namespace lockstep {

void NoiseEstimate::add(double leaf_square, double square, int64_t batch, int leaves) {
  const auto large = static_cast<double>(batch);
  const double small = large / leaves;
  const double gradient = (large * square - small * leaf_square) / (large - small);
  const double noise = (leaf_square - square) / (1 / small - 1 / large);
  gradient_ = kDecay * gradient_ + (1 - kDecay) * gradient;
  noise_ = kDecay * noise_ + (1 - kDecay) * noise;
}

double NoiseEstimate::samples() const {
  if (!(gradient_ > 0) || noise_ < 0) return std::numeric_limits<double>::quiet_NaN();
  return noise_ / gradient_;
}

NoiseScale::NoiseScale(ModelState& state, ProcessGroup& world) : state_(state), world_(world) {
  const ModelParts* const parts = state.parts();
  const plan::ParamTable& own = state.params().table();
  const plan::ParamTable& whole = parts != nullptr ? parts->whole : own;
  params_ = std::ssize(whole.params);
  std::vector<int> by_name(whole.params.size());
  for (size_t place = 0; place < whole.by_name.size(); ++place) {
    by_name[static_cast<size_t>(whole.by_name[place])] = static_cast<int>(place);
  }
  for (size_t p = 0; p < own.params.size(); ++p) {
    const bool counts = parts == nullptr || parts->counts[p];
    const int in_whole = parts == nullptr
                             ? static_cast<int>(p)
                             : parts->held[static_cast<size_t>(state.inputs().part->model_rank)][p];
    places_.push_back(counts ? by_name[static_cast<size_t>(in_whole)] : -1);
  }
  squares_.resize(static_cast<size_t>(state.inputs().leaves.grains * params_));
  listener_ = state.grads().on_leaf(
      [this](int param, int leaf, const float* values) { see_leaf(param, leaf, values); });
}

NoiseScale::~NoiseScale() { state_.grads().forget_leaf(listener_); }

void NoiseScale::see_leaf(int param, int leaf, const float* values) {
  const int place = places_[static_cast<size_t>(param)];
  if (place < 0) return;
  const int64_t numel = state_.params().table().params[static_cast<size_t>(param)].numel;
  chunks_.resize(static_cast<size_t>((numel + plan::kNormChunk - 1) / plan::kNormChunk));
  kernels::chunk_square_sums(values, numel, chunks_.data());
  squares_[static_cast<size_t>(leaf * params_ + place)] =
      plan::tree_sum(chunks_.data(), std::ssize(chunks_));
}

void NoiseScale::end_step(double grad_norm, double loss_scale, bool counts) {
  // Each number is one rank's, and 0 on the others: their sum is exact, in any order.
  at::Tensor all = at::from_blob(squares_.data(), {std::ssize(squares_)}, at::kDouble);
  world_.all_reduce(all).wait();
  const int leaves = state_.inputs().leaves.grains;
  const double sum = plan::tree_sum(squares_.data(), std::ssize(squares_));
  std::fill(squares_.begin(), squares_.end(), 0.0);
  if (!counts) return;
  // A leaf's gradient is divided by the terms of the whole step: `leaves` times too small.
  const double leaf_square = sum * leaves / (loss_scale * loss_scale);
  const double norm = grad_norm / loss_scale;
  estimate_.add(leaf_square, norm * norm, state_.inputs().batch.global_batch, leaves);
}

}  // namespace lockstep
