/// All parameter bytes of a rank: one flat fp32 buffer, laid out by the bucket plan. The module's
/// tensors are views of it, so what the optimizer writes is what the next forward reads.
///
/// Start values are drawn here, from the parameter's name and the element's logical index: every
/// rank draws the same without a broadcast, and no cut of the parameters changes a draw.
///
/// A tied parameter is stored once. Each of its uses is a leaf tensor of its own on the same
/// storage, with a gradient of its own (state/grad_store.h adds them).
///
/// Holds   4 bytes an element of `buckets().numel`       test: ParamStore.HoldsOnceWhatIsTied
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <string>
#include <vector>

#include "lockstep/base/units.h"
#include "lockstep/plan/buckets.h"
#include "lockstep/plan/digest.h"
#include "lockstep/plan/param_table.h"

namespace lockstep::state {

struct ParamStoreOptions {
  uint64_t seed = 0;  // of the start values
  int64_t first_bucket_bytes = 1 * MiB;
  int64_t bucket_bytes = 25 * MiB;
};

class ParamStore {
 public:
  /// Takes over the parameters of `module`: afterwards they are views of this store, filled with
  /// their start values. `init_of` gives the draw of each parameter by its path in the module tree.
  /// Throws UsageError for a tie that does not fit, and for one tensor registered under two names
  /// without a declared tie.
  ParamStore(torch::nn::Module& module, const std::vector<plan::Tie>& ties,
             const std::function<plan::Init(const std::string&)>& init_of,
             const ParamStoreOptions& options);

  const plan::ParamTable& table() const { return table_; }
  const plan::BucketPlan& buckets() const { return buckets_; }

  /// The fp32 master of a parameter, contiguous.
  float* master(int param);
  const float* master(int param) const;

  /// The leaf tensor of use `use` (index in Param::uses) of a parameter.
  const at::Tensor& use(int param, int use) const {
    return uses_[static_cast<size_t>(param)][static_cast<size_t>(use)];
  }

  /// The same by parameter and use.
  const std::vector<std::vector<at::Tensor>>& uses() const { return uses_; }

  plan::Digest digest() const;
  int64_t bytes() const { return flat_.numel() * 4 + fixed_.numel() * 4; }

 private:
  plan::ParamTable table_;
  plan::BucketPlan buckets_;
  at::Tensor flat_;                            // trained parameters, by slot
  at::Tensor fixed_;                           // parameters that are not trained
  std::vector<int64_t> fixed_offset_;          // by parameter, -1 for trained ones
  std::vector<std::vector<at::Tensor>> uses_;  // by parameter, by use in name order
};

}  // namespace lockstep::state
