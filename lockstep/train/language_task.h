/// The task of a language model: sequences of a token file, the loss of each next token.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/input/batch_stream.h"
#include "lockstep/models/language_model.h"
#include "lockstep/train/task.h"

namespace lockstep {

class LanguageTask final : public Task {
 public:
  /// `train` may be null for a task that is only evaluated.
  LanguageTask(std::shared_ptr<models::LanguageModel> model,
               std::shared_ptr<const input::TrainingData> train,
               std::shared_ptr<const input::TokenFile> valid, int64_t context, int64_t vocab);
  /// Model and data as `config` names them. Throws EnvironmentError for data that are not there,
  /// too short for one sequence, or hold ids that the vocabulary does not have.
  static std::shared_ptr<LanguageTask> open(const plan::TrainConfig& config,
                                            const models::ModelPart& part = {});

  torch::nn::Module& module() override { return *model_; }
  plan::Init init_of(const std::string& path) const override { return model_->init_of(path); }
  std::vector<plan::Tie> ties() const override { return model_->ties(); }

  int64_t samples() const override;
  double epochs(int64_t samples) const override { return train_->epochs(samples); }
  nlohmann::json cursor(int64_t samples) const override;
  void require_cursor(const nlohmann::json& saved) const override;
  int64_t validation_samples() const override;
  int64_t terms_per_sample() const override { return context_; }
  at::Tensor losses(const Samples& samples, const RankContext& context) override;
  at::Tensor validation_losses(int64_t first, int64_t count, int64_t of,
                               const RankContext& context) override;
  at::Tensor run_chunk(int chunk, const at::Tensor& input, const Samples& samples,
                       const RankContext& context) override;
  at::Tensor run_validation_chunk(int chunk, const at::Tensor& input, int64_t first, int64_t count,
                                  int64_t of, const RankContext& context) override;
  int chunk_of(const std::string& path) const override { return model_->chunk_of(path); }
  plan::TensorSlice slice_of(const std::string& path) const override {
    return model_->slice_of(path);
  }
  double flops_per_term() const override { return model_->flops_per_token(); }
  int64_t vocab() const override { return vocab_; }

  void start(const plan::BatchPlan& batch, const std::vector<plan::Round>& rounds,
             int64_t first_step, int64_t last_step, int64_t first_sample) override;
  void next_step() override { step_ = batches_->next(); }

 private:
  std::shared_ptr<models::LanguageModel> model_;
  std::shared_ptr<const input::TrainingData> train_;
  std::shared_ptr<const input::TokenFile> valid_;
  int64_t context_;
  int64_t vocab_;
  std::unique_ptr<input::BatchStream> batches_;
  std::vector<input::MicroBatch> step_;  // at hand
};

}  // namespace lockstep
