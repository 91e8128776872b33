#include "lockstep/parallel/context/detail/ring_run.h"

#include <ATen/ops/empty.h>

#include <utility>

namespace lockstep::parallel::detail {

at::Tensor packed(const at::Tensor& k, const at::Tensor& v) {
  const int64_t c = k.size(0), n = k.size(1), h = k.size(2) / 2, K = k.size(3);
  at::Tensor run = at::empty({c, 2, 2, n, h, K}, k.options().requires_grad(false));
  for (const int64_t which : {0, 1}) {
    const at::Tensor& x = which == 0 ? k : v;
    run.select(2, which).copy_(x.reshape({c, n, 2, h, K}).transpose(1, 2));
  }
  return run;
}

at::Tensor unpacked(const at::Tensor& run, int64_t which) {
  const int64_t c = run.size(0), n = run.size(3), h = run.size(4), K = run.size(5);
  return run.select(2, which).transpose(1, 2).contiguous().view({c, n, 2 * h, K});
}

Pending pass_on(const ContextGroup& group, const at::Tensor& run, int visitor) {
  const int ranks = group.cp->size(), rank = group.cp->rank();
  const auto before = [&](int r) { return static_cast<size_t>((r + ranks - 1) % ranks); };
  std::vector<int64_t> shape = run.sizes().vec();
  shape[0] = group.place.by_rank[before(visitor)].size();
  at::Tensor coming = at::empty(shape, run.options());
  std::vector<int64_t> sends(static_cast<size_t>(ranks)), receives(sends);
  sends[static_cast<size_t>((rank + 1) % ranks)] = run.numel();
  receives[before(rank)] = coming.numel();
  return {coming, group.cp->all_to_all(run, std::move(sends), coming, std::move(receives))};
}

}  // namespace lockstep::parallel::detail
