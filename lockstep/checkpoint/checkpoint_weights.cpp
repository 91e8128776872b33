#include "lockstep/checkpoint/checkpoint_weights.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/reader.h"

namespace lockstep::checkpoints {
namespace {

class CheckpointWeights final : public Weights {
 public:
  explicit CheckpointWeights(const std::string& folder) : reader_(folder) {
    const Manifest& manifest = reader_.manifest();
    origin_ = {.path = folder,
               .kind = "checkpoint of Lockstep",
               .config = manifest.config,
               .vocab = manifest.vocab,
               .step = manifest.step,
               .param_digest = manifest.param_digest,
               .identity = manifest.identity,
               .notes = {}};
    for (const SavedTensor& tensor : reader_.index().tensors) {
      if (tensor.kind != kParam && tensor.kind != kRunning) continue;
      list_.push_back({.name = tensor.name, .shape = tensor.shape, .numel = tensor.numel()});
    }
    const auto by_name = [](const WeightInfo& a, const WeightInfo& b) { return a.name < b.name; };
    std::sort(list_.begin(), list_.end(), by_name);
    const auto twice = std::adjacent_find(
        list_.begin(), list_.end(),
        [](const WeightInfo& a, const WeightInfo& b) { return a.name == b.name; });
    if (twice != list_.end()) {
      throw StateError(base::str(folder, ": its index has \"", twice->name,
                                 "\" both as a parameter and as a running value."));
    }
  }

  const WeightOrigin& origin() const override { return origin_; }
  const std::vector<WeightInfo>& list() const override { return list_; }
  void read(const std::string& name, int64_t first, int64_t count, float* out) const override {
    const bool is_param = reader_.index().find(kParam, name) != nullptr;
    reader_.read_logical(is_param ? kParam : kRunning, name, first, count, out);
  }

 private:
  Reader reader_;
  WeightOrigin origin_;
  std::vector<WeightInfo> list_;
};

}  // namespace

std::unique_ptr<Weights> open_checkpoint(const std::string& folder) {
  return std::make_unique<CheckpointWeights>(folder);
}

}  // namespace lockstep::checkpoints
