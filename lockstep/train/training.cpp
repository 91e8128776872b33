#include "lockstep/train/training.h"

#include <torch/utils.h>

#include <filesystem>
#include <iostream>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/str.h"
#include "lockstep/optim/clip.h"
#include "lockstep/train/data_groups.h"
#include "lockstep/train/model_file.h"
#include "lockstep/train/task.h"

namespace lockstep {

Training::Training(std::shared_ptr<ProcessGroup> world, const TrainingOptions& options)
    : options_(options) {
  const int ranks = world->size();
  if (options.shard == Shard::none && options.replicas != 1) {
    throw UsageError(
        "Training: replicas without a shard stage: every rank is a replica then.\n"
        "  Choose a stage, or leave replicas at 1.");
  }
  if (options.replicas < 1 || ranks % options.replicas != 0) {
    throw UsageError(base::str("Training: ", options.replicas, " replicas do not divide ", ranks,
                               " ranks.\n  Choose a divisor of ", ranks, "."));
  }
  if (options.prefetch < 0) {
    throw UsageError(base::str("Training: prefetch is ", options.prefetch, "; 0 or more."));
  }
  if (options.offload.parameters && options.shard != Shard::zero3) {
    throw UsageError("Training: parameters are divided, and so can be offloaded, with zero3 only.");
  }
  if (options.offload.activations) {
    throw UsageError(
        "Training: activations are offloaded by lockstep train only.\n  Recompute them instead: "
        "lockstep::checkpoint.");
  }
  const plan::ShardOptions shard{
      .stage = options.shard,
      .ranks = options.shard == Shard::none ? 1 : ranks / options.replicas,
      .replicas = options.replicas,
      .prefetch = options.prefetch,
      .reshard = options.reshard};
  inputs_.batch = plan::plan_batch(options.global_batch, options.micro_batch, options.grains);
  inputs_.leaves =
      plan::plan_leaves(inputs_.batch.grains, ranks,
                        options.shard >= Shard::zero2 ? plan::LeafAssignment::round_robin
                                                      : plan::LeafAssignment::contiguous,
                        options.replicas);
  inputs_.shards.options = shard;
  context_.world = std::move(world);
  context_.seed = options.seed;
  make_groups(context_, shard, plan::data_place(ranks, context_.world->rank()));
}

Training::~Training() = default;

TrainingOptimizer Training::adamw(const std::shared_ptr<torch::nn::Module>& module,
                                  const TrainingOptimizerOptions& options,
                                  const std::vector<plan::Tie>& ties) {
  if (state_) throw UsageError("Training: one optimizer for one module; adamw was called before.");
  if (!(options.lr >= 0)) {
    throw UsageError(base::str("Training: lr is ", options.lr, ", but must be 0 or more."));
  }
  module_ = module;
  optimizer_ = options;
  const auto init_of = options_.init_of ? options_.init_of : [&](const std::string& path) {
    return default_init(*module, path);
  };
  state_ = std::make_unique<ModelState>(
      *module, ties, init_of,
      ModelStateOptions{.shard = inputs_.shards.options,
                        .offload = options_.offload,
                        .offload_folder = options_.offload_folder,
                        .adamw = {.beta1 = options.beta1,
                                  .beta2 = options.beta2,
                                  .eps = options.eps,
                                  .weight_decay = options.weight_decay}},
      context_, inputs_);
  return TrainingOptimizer(this);
}

ModelState& Training::state() {
  if (!state_) throw UsageError("Training: call adamw first; it gives the module its values.");
  return *state_;
}

TrainingSteps Training::steps_over(int64_t size, std::function<Sample(int64_t)> get,
                                   int64_t count) {
  state();
  if (size < 1) throw UsageError("Training: the dataset is empty.");
  if (count < 0) throw UsageError(base::str("Training: ", count, " steps."));
  order_ = {.size = size, .seed = options_.seed, .shuffle = options_.shuffle};
  get_ = std::move(get);
  terms_ = get_(0).target.numel();
  TrainingSteps steps;
  steps.training_ = this;
  steps.end_ = steps_done_ + count;
  return steps;
}

TrainingBatch Training::read(const plan::Round& round) {
  const plan::SampleRange samples = inputs_.batch.samples(round.leaf, round.micro);
  context_.step = steps_done_;
  context_.leaf = round.leaf;
  context_.micro = round.micro;
  context_.first_sample = samples.lo;
  std::vector<at::Tensor> x, y;
  for (int64_t s = samples.lo; s < samples.hi; ++s) {
    const int64_t number = steps_done_ * options_.global_batch + s;
    const Sample sample = get_(order_.at(number / order_.size, number % order_.size));
    x.push_back(sample.data);
    y.push_back(sample.target);
  }
  // What torch::dropout draws follows the samples, not the rank or what it did before.
  torch::manual_seed(base::mix64(base::mix64(context_.seed ^ static_cast<uint64_t>(steps_done_)) +
                                 static_cast<uint64_t>(samples.lo)));
  TrainingBatch batch{.x = at::stack(x), .y = at::stack(y), .tokens = 0};
  batch.tokens = batch.y.numel();
  if (batch.tokens != terms_ * samples.size()) {
    throw UsageError(base::str("Training: samples differ in size: the first has ", terms_,
                               " targets, ", samples.size(), " of step ", steps_done_, " have ",
                               batch.tokens,
                               ".\n  Pad them alike: the step's total is known before "
                               "its first backward."));
  }
  return batch;
}

void Training::without_gradients(const std::function<void()>& forward) {
  const at::NoGradGuard no_grad;
  if (state().params().units() == nullptr) return forward();
  state().runner().run_forward(forward);
}

void Training::save(const std::string& folder) {
  std::filesystem::create_directories(folder);
  const std::string sum = digest();
  if (context_.world->rank() == 0) {
    save_parameters(folder + "/model.safetensors", state().whole(),
                    {{"param_digest", sum}, {"step", std::to_string(steps_done_)}});
  } else if (state().has_saved_replica()) {
    help_to_save(state().whole());
  }
  context_.world->barrier();
}

std::string Training::digest() { return state().digest(); }

bool TrainingStep::advance() {
  if (open_) {
    throw UsageError(base::str("Training: step ", number_,
                               " goes on to its next micro-batch before the last one had its "
                               "backward.\n  Call step.backward(loss, mb.tokens) once for each."));
  }
  if (exhausted_) return false;
  const std::optional<plan::Round> round = training_->state_->runner().next_forward();
  if (!round) {
    exhausted_ = true;
    batch_ = {};
    return false;
  }
  batch_ = training_->read(*round);
  open_ = true;
  return true;
}

void TrainingStep::backward(const at::Tensor& loss, int64_t weight) {
  if (!open_) {
    throw UsageError(
        "Training: step.backward without an open micro-batch: once for each, inside "
        "the loop over the step.");
  }
  if (weight != batch_.tokens) {
    throw UsageError(base::str("Training: step.backward says ", weight,
                               " terms, the micro-batch has ", batch_.tokens,
                               ".\n  The loss is a sum over all terms of the micro-batch; pass "
                               "mb.tokens."));
  }
  if (loss.numel() != 1 && loss.numel() != weight) {
    throw UsageError(base::str("Training: a loss of shape ", loss.sizes(), " for ", weight,
                               " terms.\n  Give their sum, or one number for each."));
  }
  open_ = false;
  const double total = static_cast<double>(training_->options_.global_batch * training_->terms_);
  training_->state_->runner().backward(loss, 1 / total);
}

void TrainingOptimizer::step(TrainingStep& step) {
  if (step.finished_) throw UsageError("Training: opt.step was called before for this step.");
  // A rank without a sample has its part in the sums, too.
  while (!step.exhausted_) {
    if (step.advance()) {
      throw UsageError(base::str("Training: opt.step before all micro-batches of step ",
                                 step.number_,
                                 " had their backward.\n  Loop over the step first."));
    }
  }
  Training& training = *training_;
  ModelState& state = *training.state_;
  const StepResult result = state.runner().finish([&](double grad_norm) {
    if (!std::isfinite(grad_norm)) return;
    state.update(training.optimizer_.lr,
                 optim::clip_scale(grad_norm, training.optimizer_.grad_clip));
  });
  const double terms = static_cast<double>(training.options_.global_batch * training.terms_);
  step.loss_ = result.loss_sum / terms;
  step.grad_norm_ = result.grad_norm;
  step.finished_ = true;
  if (!std::isfinite(result.grad_norm) || !std::isfinite(result.loss_sum)) {
    throw TrainingError(base::str("Training: step ", step.number_, ": loss ", step.loss_,
                                  ", gradient norm ", result.grad_norm,
                                  ".\n  The parameters did not take the step. A lower lr often "
                                  "helps."));
  }
  ++training.steps_done_;
}

void TrainingOptimizer::set_lr(double lr) {
  if (!(lr >= 0)) throw UsageError(base::str("Training: lr is ", lr, ", but must be 0 or more."));
  training_->optimizer_.lr = lr;
}

TrainingSteps::Iterator TrainingSteps::begin() {
  step_.training_ = training_;
  step_.finished_ = true;
  Iterator first(this);
  ++first;
  return first;
}

TrainingSteps::Iterator& TrainingSteps::Iterator::operator++() {
  TrainingSteps& steps = *steps_;
  if (!steps.step_.finished_) {
    throw UsageError(
        base::str("Training: step ", steps.step_.number_, " ended without opt.step(step)."));
  }
  if (steps.training_->steps_done_ >= steps.end_) {
    steps_ = nullptr;
    return *this;
  }
  Training* const training = steps.training_;
  steps.step_ = TrainingStep();
  steps.step_.training_ = training;
  steps.step_.number_ = training->steps_done_;
  training->state_->runner().begin();
  return *this;
}

bool TrainingSteps::Iterator::operator==(std::default_sentinel_t) const {
  return steps_ == nullptr;
}

void print(const std::string& text) { std::cout << text << '\n' << std::flush; }

}  // namespace lockstep
