/// A task whose pieces sleep in the place of computing: a pipeline's timing on a machine with fewer
/// cores than stages. Everything else of a step is real: schedule, messages, gradients, updates.
///
/// Each piece of the model has one parameter, so that sums, norm and optimizer have something to
/// do; the loss means nothing.
#pragma once

#include <string>

#include "lockstep/plan/synthetic_compute.h"
#include "lockstep/train/task.h"

namespace lockstep {

class SyntheticTask final : public Task {
 public:
  /// `pieces`: of this stage.
  SyntheticTask(const plan::SyntheticCompute& compute, int64_t global_batch,
                const std::vector<plan::ModelChunk>& pieces);

  torch::nn::Module& module() override { return *module_; }
  int64_t samples() const override { return global_batch_; }
  at::Tensor losses(const Samples& samples, const RankContext& context) override {
    return run_chunk(0, {}, samples, context);
  }
  at::Tensor run_chunk(int chunk, const at::Tensor& input, const Samples& samples,
                       const RankContext& context) override;
  int chunk_of(const std::string& path) const override;

 private:
  plan::SyntheticCompute compute_;
  int64_t global_batch_;
  std::vector<plan::ModelChunk> pieces_;
  std::shared_ptr<torch::nn::Module> module_;
  std::vector<at::Tensor> weights_;  // by piece
};

}  // namespace lockstep
