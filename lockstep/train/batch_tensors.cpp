#include "lockstep/train/batch_tensors.h"

namespace lockstep {

std::pair<at::Tensor, at::Tensor> inputs_and_targets(const std::vector<int64_t>& tokens,
                                                     int64_t context) {
  const int64_t rows = static_cast<int64_t>(tokens.size()) / (context + 1);
  const at::Tensor all =
      at::from_blob(const_cast<int64_t*>(tokens.data()), {rows, context + 1}, at::kLong);
  return {all.narrow(1, 0, context).contiguous(), all.narrow(1, 1, context).contiguous()};
}

double sum_in_order(const at::Tensor& losses) {
  const at::Tensor flat = losses.detach().contiguous();
  const float* values = flat.data_ptr<float>();
  double sum = 0;
  for (int64_t i = 0; i < flat.numel(); ++i) sum += values[i];
  return sum;
}

}  // namespace lockstep
