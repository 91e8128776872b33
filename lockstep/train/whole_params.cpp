#include "lockstep/train/whole_params.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <map>

#include "lockstep/base/assert.h"

namespace lockstep {

WholeParams::WholeParams(state::ParamStore& params, ProcessGroup* model, const ModelParts* parts,
                         const std::vector<NamedTensor>& running_values)
    : params_(params),
      model_(model),
      parts_(parts),
      table_(parts != nullptr ? parts->whole : params.table()) {
  std::map<std::string, Logical> by_name;
  for (const int index : table_.by_name) {
    const plan::Param& param = table_.params[static_cast<size_t>(index)];
    Logical& logical = by_name[plan::logical_name(param)];
    logical.name = plan::logical_name(param);
    logical.shape = plan::logical_shape(param);
    logical.pieces.push_back(index);
  }
  for (const NamedTensor& value : running_values) {
    by_name[value.name] = {.name = value.name,
                           .shape = value.tensor.sizes().vec(),
                           .numel = 0,
                           .pieces = {},
                           .running = value.tensor};
  }
  for (auto& [name, logical] : by_name) {
    logical.numel = 1;
    for (const int64_t size : logical.shape) logical.numel *= size;
    list_.push_back(std::move(logical));
  }
}

/// One tensor of the table, on rank 0 of the model's group.
const float* WholeParams::piece(int whole) {
  if (parts_ == nullptr) return params_.whole(whole);
  const auto holds = [&](const std::vector<int>& held) {
    return std::find(held.begin(), held.end(), whole) != held.end();
  };
  const auto first = std::find_if(parts_->held.begin(), parts_->held.end(), holds);
  LOCKSTEP_ASSERT(first != parts_->held.end(), "somebody holds each parameter");
  const int sender = static_cast<int>(first - parts_->held.begin());
  const std::vector<int>& own = parts_->held[static_cast<size_t>(model_->rank())];
  const auto here = std::find(own.begin(), own.end(), whole);
  const float* values = nullptr;
  // Ranks that divide the part's parameters gather together.
  if (here != own.end()) values = params_.whole(static_cast<int>(here - own.begin()));
  if (sender == 0) return values;
  const int64_t numel = table_.params[static_cast<size_t>(whole)].numel;
  if (model_->rank() == sender) {
    model_->send(at::from_blob(const_cast<float*>(values), {numel}, at::kFloat), 0).wait();
  }
  if (model_->rank() != 0) return nullptr;
  received_ = at::empty({numel}, at::kFloat);
  model_->recv(received_, sender).wait();
  return received_.data_ptr<float>();
}

const float* WholeParams::bring(size_t index) {
  const Logical& logical = list_[index];
  if (logical.running.defined()) return logical.running.data_ptr<float>();
  if (table_.params[static_cast<size_t>(logical.pieces.front())].slice.logical.empty()) {
    return piece(logical.pieces.front());
  }
  const bool mine = parts_ == nullptr || model_->rank() == 0;
  assembled_.resize(mine ? static_cast<size_t>(logical.numel) : 0);
  for (const int whole : logical.pieces) {
    const float* const values = piece(whole);
    if (!mine) continue;
    const plan::Param& param = table_.params[static_cast<size_t>(whole)];
    for (const plan::LogicalRun& run : plan::logical_runs(param, 0, param.numel)) {
      if (run.first < 0) continue;
      std::copy_n(values + run.lo, run.size(), assembled_.data() + run.first);
    }
  }
  return mine ? assembled_.data() : nullptr;
}

}  // namespace lockstep
