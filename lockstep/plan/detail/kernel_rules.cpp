#include "lockstep/plan/detail/kernel_rules.h"

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::plan {

void check_kernels(const TrainConfig& config) {
  const bool fused = config.numerics.kernels == "fused";
  if (fused && config.memory.recompute == "selective") {
    throw UsageError(
        "memory.recompute = \"selective\" wants numerics.kernels = \"aten\": the fused attention "
        "keeps no scores, so nothing is left to save.\n  These fit: --set memory.recompute=none or "
        "--set memory.recompute=block");
  }
  if (!fused && config.precision.compute != "fp32") {
    throw UsageError(
        base::str("precision.compute = \"", config.precision.compute,
                  "\" wants numerics.kernels = \"fused\": LibTorch's operators compute "
                  "in fp32.\n  These fit: --set numerics.kernels=fused or --set "
                  "precision.compute=fp32"));
  }
}

}  // namespace lockstep::plan
