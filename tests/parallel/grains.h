/// What the tests of tensor-parallel layers share: groups over grains, values whose order of
/// addition shows, and the layouts that every layer must give one result on.
#pragma once

#include "lockstep/base/counter_random.h"
#include "lockstep/parallel/tensor/grain_sum.h"
#include "tests/comm/on_ranks.h"

namespace lockstep::parallel {

using test::on_ranks;
using test::same_bits;

inline constexpr int kGrains = 4;

/// All grains here.
inline TensorGroup alone(int grains = kGrains) {
  TensorGroup group;
  group.place = plan::place_of(grains, 1, 0, false);
  return group;
}

inline TensorGroup shared_by(ProcessGroup& ranks, bool sequence, int grains = kGrains) {
  TensorGroup group;
  group.tp = std::shared_ptr<ProcessGroup>(&ranks, [](ProcessGroup*) {});
  group.place = plan::place_of(grains, ranks.size(), ranks.rank(), sequence);
  return group;
}

/// `body` on 1, 2, 3 and 4 ranks, with the sequence whole and divided.
inline void on_layouts(const std::function<void(const TensorGroup&)>& body) {
  for (const bool sequence : {false, true}) {
    SCOPED_TRACE(sequence ? "sequence divided" : "sequence whole");
    on_ranks({1, 2, 3, 4}, [&](ProcessGroup& ranks) { body(shared_by(ranks, sequence)); });
  }
}

/// Of very different size, so that another order of additions shows.
inline at::Tensor values(uint64_t seed, at::IntArrayRef shape) {
  const base::RandomKey key(seed);
  at::Tensor x = torch::empty(shape);
  float* const data = x.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) {
    const auto at = static_cast<uint64_t>(2 * i);
    data[i] =
        static_cast<float>(std::ldexp(key.normal(at), static_cast<int>(key.below(at + 1, 8)) - 4));
  }
  return x;
}

inline at::Tensor leaf(const at::Tensor& x) { return x.detach().clone().requires_grad_(); }

/// One for each grain.
inline std::vector<at::Tensor> grain_values(uint64_t seed, at::IntArrayRef shape,
                                            int grains = kGrains) {
  std::vector<at::Tensor> all;
  for (int t = 0; t < grains; ++t)
    all.push_back(values(seed + 100 * static_cast<uint64_t>(t), shape));
  return all;
}

/// Leaves of the group's own grains.
inline std::vector<at::Tensor> own_leaves(const TensorGroup& group,
                                          const std::vector<at::Tensor>& all) {
  std::vector<at::Tensor> own;
  for (int t = group.place.local.lo; t < group.place.local.hi; ++t) own.push_back(leaf(all[t]));
  return own;
}

/// The part of a whole [T, ...] that the group's activations are.
inline at::Tensor own_slices(const TensorGroup& group, const at::Tensor& whole) {
  return whole.narrow(0, group.slices().lo, group.slices().size());
}

/// Every grain's tensor has the bits that all grains in one place gave.
inline void expect_own_bits(const TensorGroup& group, const std::vector<at::Tensor>& own,
                            const std::vector<at::Tensor>& all, const char* what) {
  ASSERT_EQ(static_cast<int>(own.size()), group.local());
  for (int i = 0; i < group.local(); ++i) {
    EXPECT_TRUE(same_bits(own[i].contiguous(), all[group.place.local.lo + i].contiguous()))
        << what << " of grain " << group.place.local.lo + i;
  }
}

inline std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& leaves) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& x : leaves) gradients.push_back(x.grad());
  return gradients;
}

/// Largest |got - exact| as a share of `bound`, elementwise: 1 or less is within the bound.
inline double share_of_bound(const at::Tensor& got, const at::Tensor& exact,
                             const at::Tensor& bound) {
  return ((got.detach().to(at::kDouble) - exact).abs() / bound).max().item<double>();
}

/// The bound of a float sum of `terms` products (or of sums of such) whose magnitudes add up to
/// `magnitude`: each of the operations rounds once, to 2^-24.
inline at::Tensor sum_bound(const at::Tensor& magnitude, int64_t terms) {
  return magnitude * (static_cast<double>(terms + 2) * 0x1p-24) + 1e-30;
}

}  // namespace lockstep::parallel
