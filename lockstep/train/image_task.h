/// The task of telling pictures apart: a residual network, files of pictures with labels
/// (files/picture_file.h), and the cross-entropy of each picture.
///
/// data.augment   a picture is shifted by up to 2 points each way and mirrored half of the time,
///                drawn from the step and the sample's number: the same on any layout
///
/// Same bits on any number of ranks with model.norm = batch, group or layer. With `sync` the
/// statistics are those of the micro-batches that the ranks compute at the same time: a run on
/// another number of ranks is another run, and the one on these ranks has the same bits each time.
///
/// Source  Xiao, Rasul and Vollgraf 2017, arXiv:1708.07747 (the pictures);
///         docs/concepts/batch_norm.md
#pragma once

#include <memory>

#include "lockstep/files/picture_file.h"
#include "lockstep/models/resnet.h"
#include "lockstep/train/task.h"

namespace lockstep {

struct ImageTaskOptions {
  uint64_t seed = 0;  // of the order of samples
  bool shuffle = true;
  bool augment = false;
};

class ImageTask final : public Task {
 public:
  /// `train` may be null for a task that is only evaluated. Throws UsageError if the two files
  /// differ in the size of their pictures or in classes.
  ImageTask(std::shared_ptr<models::ResNet> model, std::shared_ptr<const files::PictureFile> train,
            std::shared_ptr<const files::PictureFile> valid, const ImageTaskOptions& options);
  /// Model and data as `config` names them. Throws EnvironmentError for data that are not there.
  static std::shared_ptr<ImageTask> open(const plan::TrainConfig& config);
  /// Without training data, to evaluate on the pictures of the file `valid`.
  static std::shared_ptr<ImageTask> open_valid(const plan::TrainConfig& config,
                                               const std::string& valid);

  torch::nn::Module& module() override { return *model_; }
  plan::Init init_of(const std::string& path) const override { return model_->init_of(path); }
  std::vector<NamedTensor> running_values() override { return buffers_of(*model_); }

  std::string unit() const override { return "pictures"; }
  int64_t samples() const override { return train_->shape().count; }
  const files::PictureFile& validation_data() const { return *valid_; }
  int64_t validation_samples() const override { return valid_->shape().count; }
  at::Tensor losses(const Samples& samples, const RankContext& context) override;
  at::Tensor validation_losses(int64_t first, int64_t count, int64_t of,
                               const RankContext& context) override {
    return validate(first, count, of, context).losses;
  }
  bool has_accuracy() const override { return true; }
  ValidationScores validate(int64_t first, int64_t count, int64_t of,
                            const RankContext& context) override;
  double flops_per_term() const override;

  void start(const plan::BatchPlan& batch, const std::vector<plan::Round>& rounds,
             int64_t first_step, int64_t last_step, int64_t first_sample) override;
  void next_step() override { model_->begin_step(); }
  void end_step(const RankContext& context) override;

 private:
  void synchronize(const RankContext& context);

  std::shared_ptr<models::ResNet> model_;
  std::shared_ptr<const files::PictureFile> train_;
  std::shared_ptr<const files::PictureFile> valid_;
  ImageTaskOptions options_;
  int leaves_ = 0;             // of a step
  bool synchronized_ = false;  // the model has its group
};

}  // namespace lockstep
