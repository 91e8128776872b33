#include "lockstep/train/language_task.h"

#include <algorithm>

#include "lockstep/base/assert.h"
#include "lockstep/input/data_cursor.h"
#include "lockstep/input/sampler.h"
#include "lockstep/torch_inside/deferred.h"
#include "lockstep/train/batch_tensors.h"

namespace lockstep {

LanguageTask::LanguageTask(std::shared_ptr<models::LanguageModel> model,
                           std::shared_ptr<const input::TrainingData> train,
                           std::shared_ptr<const input::TokenFile> valid, int64_t context,
                           int64_t vocab)
    : model_(std::move(model)),
      train_(std::move(train)),
      valid_(std::move(valid)),
      context_(context),
      vocab_(vocab) {
  input::require_window(*valid_, context_);
  valid_->check_ids(vocab_);
  if (train_) train_->check_ids(vocab_);
}

std::shared_ptr<LanguageTask> LanguageTask::open(const plan::TrainConfig& config,
                                                 const models::ModelPart& part) {
  const int64_t context = config.model.context;
  const int64_t vocab = plan::resolved_vocab(config);
  auto train =
      input::TrainingData::open(config.data.train, {.context = context,
                                                    .seed = static_cast<uint64_t>(config.run.seed),
                                                    .shuffle = config.data.shuffle});
  auto valid = input::TokenFile::open(config.data.valid);
  // Its values are drawn where they belong: the model may be larger than a rank.
  auto model = torch_inside::deferred([&] { return models::make_model(config, vocab, part); });
  return std::make_shared<LanguageTask>(std::move(model), std::move(train), std::move(valid),
                                        context, vocab);
}

int64_t LanguageTask::samples() const {
  int64_t windows = 0;
  for (const auto& source : train_->sources()) windows += source.sampler.windows();
  return windows;
}

nlohmann::json LanguageTask::cursor(int64_t samples) const {
  return input::to_json(input::data_cursor(*train_, samples));
}

void LanguageTask::require_cursor(const nlohmann::json& saved) const {
  input::require_same_data(input::data_cursor_from_json(saved), input::data_cursor(*train_, 0));
}

int64_t LanguageTask::validation_samples() const {
  return input::Sampler{.tokens = valid_->size(), .context = context_}.windows();
}

void LanguageTask::start(const plan::BatchPlan& batch, const std::vector<plan::Round>& rounds,
                         int64_t first_step, int64_t last_step, int64_t first_sample) {
  constexpr int kAhead = 2;
  batches_ = std::make_unique<input::BatchStream>(train_, batch, rounds, first_step, last_step,
                                                  kAhead, first_sample);
}

at::Tensor LanguageTask::losses(const Samples& samples, const RankContext& context) {
  return run_chunk(0, {}, samples, context);
}

at::Tensor LanguageTask::run_chunk(int chunk, const at::Tensor& input, const Samples& samples,
                                   const RankContext& context) {
  const auto batch = std::find_if(
      step_.begin(), step_.end(),
      [&](const input::MicroBatch& candidate) { return candidate.round == samples.round; });
  LOCKSTEP_ASSERT(batch != step_.end() && batch->samples.size() == samples.count,
                  "the program asks for the rounds that it was planned with");
  const auto [ids, targets] = inputs_and_targets(batch->tokens, batch->context);
  return model_->run_chunk(chunk, input.defined() ? input : ids, targets, context);
}

at::Tensor LanguageTask::validation_losses(int64_t first, int64_t count, int64_t of,
                                           const RankContext& context) {
  return run_validation_chunk(0, {}, first, count, of, context);
}

at::Tensor LanguageTask::run_validation_chunk(int chunk, const at::Tensor& input, int64_t first,
                                              int64_t count, int64_t of,
                                              const RankContext& context) {
  std::vector<int64_t> tokens(static_cast<size_t>(count * (context_ + 1)));
  for (int64_t row = 0; row < count; ++row) {
    valid_->read(input::evaluation_token(valid_->size(), context_, of, first + row), context_ + 1,
                 tokens.data() + row * (context_ + 1));
  }
  const auto [ids, targets] = inputs_and_targets(tokens, context_);
  return model_->run_chunk(chunk, input.defined() ? input : ids, targets, context);
}

}  // namespace lockstep
