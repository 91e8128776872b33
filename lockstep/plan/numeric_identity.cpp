#include "lockstep/plan/numeric_identity.h"

#include "lockstep/base/str.h"

namespace lockstep::plan {

std::string NumericIdentity::text() const {
  return base::str("B", batch.global_batch, " b", batch.micro_batch, " G", batch.grains, " M",
                   batch.micro_batches_per_grain, " T", tensor_grains,
                   batch.context_grains > 1 ? base::str(" C", batch.context_grains) : "", " ",
                   compute, " ", kernel_set, " ", instruction_set, " ", threads_per_rank, "t");
}

}  // namespace lockstep::plan
