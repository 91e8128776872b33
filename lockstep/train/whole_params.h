/// The logical parameters of a model and its running values, one after the other, on one rank:
/// gathered from those who hold their shards, grains and stages. No rank holds more than one
/// parameter whole.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/state/param_store.h"
#include "lockstep/train/model_parts.h"
#include "lockstep/train/replicas.h"

namespace lockstep {

class WholeParams {
 public:
  struct Logical {
    std::string name;
    std::vector<int64_t> shape;
    int64_t numel = 0;
    std::vector<int> pieces;  // places in the table of all parts
    at::Tensor running;       // the values, where it is no parameter; whole on every rank
  };

  /// `parts` and `model`: of a model that ranks hold parts of; else null. Must outlive this.
  WholeParams(state::ParamStore& params, ProcessGroup* model, const ModelParts* parts,
              const std::vector<NamedTensor>& running_values = {});

  /// In name order.
  const std::vector<Logical>& list() const { return list_; }

  /// Parameter `index` of the list on rank 0 of `model` (without parts: on every caller), until the
  /// next call; null on the others. All ranks that hold the model, or divide it, call it for the
  /// same parameters in the same order.
  const float* bring(size_t index);
  /// What is gathered is freed.
  void release() { params_.release_whole(); }

 private:
  const float* piece(int whole);

  state::ParamStore& params_;
  ProcessGroup* model_;
  const ModelParts* parts_;
  const plan::ParamTable& table_;  // of all parts
  std::vector<Logical> list_;
  std::vector<float> assembled_;
  at::Tensor received_;
};

}  // namespace lockstep
