#include "lockstep/train/batch_tensors.h"

namespace lockstep {

std::pair<at::Tensor, at::Tensor> inputs_and_targets(const std::vector<int64_t>& tokens,
                                                     int64_t context) {
  const int64_t rows = static_cast<int64_t>(tokens.size()) / (context + 1);
  const at::Tensor all =
      at::from_blob(const_cast<int64_t*>(tokens.data()), {rows, context + 1}, at::kLong);
  return {all.narrow(1, 0, context).contiguous(), all.narrow(1, 1, context).contiguous()};
}

}  // namespace lockstep
