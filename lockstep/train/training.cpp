#include "lockstep/train/training.h"

#include <torch/utils.h>

#include <filesystem>
#include <iostream>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/str.h"
#include "lockstep/optim/clip.h"
#include "lockstep/plan/run_layout.h"
#include "lockstep/train/data_groups.h"
#include "lockstep/train/model_file.h"
#include "lockstep/train/task.h"

namespace lockstep {

namespace {

/// For `ranks` data-parallel ranks.
void check_options(const TrainingOptions& options, int ranks) {
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
}

}  // namespace

Mesh Mesh::parse(const std::string& text, std::shared_ptr<ProcessGroup> world) {
  plan::Mesh axes = plan::Mesh::parse(text, world->size());
  for (const plan::MeshAxis& axis : axes.axes()) {
    if (axis.name == "dp" || axis.name == "pp" || axis.name == "tp") continue;
    throw UsageError(base::str("Mesh \"", text, "\": there is no axis \"", axis.name,
                               "\".\n  dp divides the batch, pp the layers, tp each layer; cp, "
                               "which divides sequences, is an axis of lockstep train."));
  }
  return {std::move(axes), std::move(world)};
}

Training::Training(const Mesh& mesh, const TrainingOptions& options)
    : options_(options), scaler_(options.loss_scale) {
  const int rank = mesh.world->rank();
  check_options(options, mesh.axes.size("dp"));
  if (options.replicas != 1) {
    throw UsageError("Training: over a mesh all data-parallel ranks make one replica of shards.");
  }
  const bool sharded = options.shard != Shard::none;
  plan::RankPlace place{
      .data = mesh.axes.index(rank, "dp"),
      .stage = mesh.axes.index(rank, "pp"),
      .tensor = mesh.axes.index(rank, "tp"),
      .dp = mesh.axes.group_of(rank, {"dp"}),
      .model = mesh.axes.group_of(rank, sharded ? std::vector<std::string>{"dp", "pp", "tp"}
                                                : std::vector<std::string>{"pp", "tp"}),
      .stages = mesh.axes.group_of(rank, {"pp"}),
      .tp = mesh.axes.group_of(rank, {"tp"}),
      .cp = {rank}};
  const int tensor_ranks = mesh.axes.size("tp");
  const int grains = options.tensor_grains > 0 ? options.tensor_grains : tensor_ranks;
  if (grains < tensor_ranks) {
    throw UsageError(base::str("Training: ", tensor_ranks, " tensor-parallel ranks share ", grains,
                               " tensor grains; one each at least."));
  }
  context_.tensor =
      plan::place_of(grains, tensor_ranks, place.tensor, options.sequence && tensor_ranks > 1);
  pipeline_ = {.schedule = options.schedule,
               .stages = mesh.axes.size("pp"),
               .chunks = std::max(options.chunks, plan::fewest_chunks(options.schedule))};
  context_.world = mesh.world;
  plan_step(place);
}

Training::Training(std::shared_ptr<ProcessGroup> world, const TrainingOptions& options)
    : options_(options), scaler_(options.loss_scale) {
  const int ranks = world->size();
  check_options(options, ranks);
  context_.world = std::move(world);
  plan_step(plan::data_place(ranks, context_.world->rank()));
}

void Training::plan_step(const plan::RankPlace& place) {
  place_ = place;
  const auto ranks = static_cast<int>(place.dp.size());
  const bool pipelined = pipeline_.stages > 1 || pipeline_.chunks > 1;
  inputs_.batch = plan::plan_batch(options_.global_batch, options_.micro_batch, options_.grains);
  inputs_.leaves =
      plan::plan_leaves(inputs_.batch.grains, ranks,
                        options_.shard >= Shard::zero2 ? plan::LeafAssignment::round_robin
                                                       : plan::LeafAssignment::contiguous,
                        options_.replicas);
  inputs_.shards.options = {.stage = options_.shard,
                            .ranks = options_.shard == Shard::none ? 1 : ranks / options_.replicas,
                            .replicas = options_.replicas,
                            .prefetch = options_.prefetch,
                            .reshard = pipelined ? Reshard::never : options_.reshard};
  inputs_.stage = place.stage;
  for (int rank = 0; rank < ranks && pipelined; ++rank) {
    pipeline_.micro_batches = static_cast<int>(inputs_.leaves.leaves_of(rank).size()) *
                              inputs_.batch.micro_batches_per_grain;
    inputs_.schedules.push_back(plan::plan_pipeline(pipeline_));
  }
  context_.seed = options_.seed;
  context_.arithmetic = options_.arithmetic;
  make_groups(context_, inputs_.shards.options, place);
}

std::shared_ptr<LayerNet> Training::build_layers(const std::function<void(Layers&)>& add) {
  Layers layers;
  add(layers);
  const int64_t count = LayerNet::count(layers);
  std::vector<std::pair<int64_t, int64_t>> runs = {{0, count}};
  if (inputs_.pipelined()) {
    const plan::PipelineSchedule& shape = inputs_.schedules.front();
    const std::vector<plan::ModelChunk> pieces = plan::cut_layers(count, shape.virtual_stages());
    runs.clear();
    for (int chunk = 0; chunk < shape.chunks; ++chunk) {
      const auto& piece = pieces[static_cast<size_t>(shape.virtual_stage(place_.stage, chunk))];
      runs.emplace_back(piece.first_layer, piece.last_layer);
    }
  }
  const BuildScope scope(context_);
  net_ = torch_inside::deferred([&] { return std::make_shared<LayerNet>(layers, runs); });
  return net_;
}

Training::~Training() = default;

TrainingOptimizer Training::adamw(const std::shared_ptr<torch::nn::Module>& module,
                                  const TrainingOptimizerOptions& options,
                                  const std::vector<plan::Tie>& ties) {
  return optimizer(module,
                   optim::AdamWOptions{.beta1 = options.beta1,
                                       .beta2 = options.beta2,
                                       .eps = options.eps,
                                       .weight_decay = options.weight_decay},
                   {.lr = options.lr, .grad_clip = options.grad_clip, .groups = options.groups},
                   ties);
}

TrainingOptimizer Training::optimizer(const std::shared_ptr<torch::nn::Module>& module,
                                      const optim::OptimizerOptions& options,
                                      const TrainingRates& rates,
                                      const std::vector<plan::Tie>& ties) {
  if (state_) throw UsageError("Training: one optimizer for one module; there is one already.");
  if (!(rates.lr >= 0)) {
    throw UsageError(base::str("Training: lr is ", rates.lr, ", but must be 0 or more."));
  }
  module_ = module;
  rates_ = rates;
  const auto init_of = options_.init_of ? options_.init_of : [&](const std::string& path) {
    return default_init(*module, path);
  };
  ModelStateOptions state_options{.shard = inputs_.shards.options,
                                  .offload = options_.offload,
                                  .offload_folder = options_.offload_folder,
                                  .optimizer = options,
                                  .groups = rates.groups};
  std::vector<plan::Tie> all_ties = ties;
  if (net_ != nullptr && net_.get() == module.get()) {
    all_ties.insert(all_ties.end(), net_->ties().begin(), net_->ties().end());
    state_options.slice_of = [this](const std::string& path) { return net_->slice_of(path); };
    state_options.chunk_of = [this](const std::string& path) { return net_->chunk_of(path); };
    if (inputs_.pipelined()) {
      const plan::PipelineSchedule& shape = inputs_.schedules.front();
      state_options.messages =
          std::make_shared<StageMessages>(*context_.world, place_.stages, shape);
      state_options.has_losses =
          shape.stage_of(shape.virtual_stages() - 1) == place_.stage && place_.tensor == 0;
    } else {
      state_options.has_losses = place_.tensor == 0;
    }
  } else if (place_.stages.size() * place_.tp.size() > 1) {
    throw UsageError(
        "Training: over a mesh with pp or tp the model is what build_layers gave: pass it to the "
        "optimizer.");
  }
  state_ =
      std::make_unique<ModelState>(*module, all_ties, init_of, state_options, context_, inputs_);
  return TrainingOptimizer(this);
}

ModelState& Training::state() {
  if (!state_)
    throw UsageError(
        "Training: make an optimizer first, as by adamw; it gives the module its values.");
  return *state_;
}

TrainingSteps Training::steps_over(int64_t size, std::function<Sample(int64_t)> get,
                                   int64_t count) {
  state();
  if (size < 1) throw UsageError("Training: the dataset is empty.");
  if (count < 0) throw UsageError(base::str("Training: ", count, " steps."));
  order_ = {.size = size, .seed = options_.seed, .shuffle = options_.shuffle};
  if (!order_saved_.is_null() && order_saved_ != order_json()) {
    throw UsageError(base::str("Training: the checkpoint counts in samples ", order_saved_.dump(),
                               ", this loop's are ", order_json().dump(),
                               ": it would repeat some and leave others out."));
  }
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
  training_->state_->runner().backward(loss, training_->weight_of_term());
}

void TrainingStep::run(const std::shared_ptr<LayerNet>& net, const LayerLoss& loss) {
  Training& training = *training_;
  if (net != training.net_) {
    throw UsageError("Training: step.run takes the net that build_layers gave.");
  }
  if (open_ || exhausted_) {
    throw UsageError("Training: step.run is all of a step: once, and without a loop over it.");
  }
  StepCompute compute;
  compute.forward = [&](const plan::Step& op, const at::Tensor& input) {
    const TrainingBatch batch = training.read({op.leaf, op.micro});
    return net->run_chunk(op.chunk, input.defined() ? input : batch.x, batch.y, loss);
  };
  training.state_->runner().compute(compute, training.weight_of_term());
  exhausted_ = true;
}

void TrainingOptimizer::step(TrainingStep& step) {
  if (step.finished_) {
    throw UsageError(
        "Training: opt.step was called before for this step: its gradients are unscaled, clipped "
        "and applied, and a second time would divide them by the loss scale again.");
  }
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
  const TrainingRates& rates = training.rates_;
  precision::LossScaler& scaler = training.scaler_;
  // Unscales and clips at once: the limit is one of the gradients' own norm.
  const auto factor = [scale = scaler.scale(), limit = rates.grad_clip](double norm) {
    return optim::clip_scale(norm / scale, limit) / scale;
  };
  StepCompute compute;
  compute.take = [&](const StepResult& result) {
    step.taken_ = std::isfinite(result.grad_norm) && std::isfinite(result.loss_sum);
    return step.taken_;
  };
  compute.ratios = [&](double grad_norm) { state.measure(factor(grad_norm)); };
  compute.update = [&](double grad_norm) { state.update(rates.lr, factor(grad_norm)); };
  const StepResult result = state.runner().finish(compute);
  const double terms = static_cast<double>(training.options_.global_batch * training.terms_);
  step.loss_ = result.loss_sum / terms;
  step.grad_norm_ = scaler.unscaled(result.grad_norm);
  step.finished_ = true;
  bool overflowed = false;
  if (step.taken_) {
    scaler.clean();
  } else if (std::isfinite(result.loss_sum)) {
    overflowed = scaler.overflow();
  }
  if (!step.taken_ && !overflowed) {
    throw TrainingError(base::str("Training: step ", step.number_, ": loss ", step.loss_,
                                  ", gradient norm ", step.grad_norm_,
                                  ".\n  The parameters did not take the step. A lower lr often "
                                  "helps."));
  }
  ++training.steps_done_;
}

void TrainingOptimizer::set_lr(double lr) {
  if (!(lr >= 0)) throw UsageError(base::str("Training: lr is ", lr, ", but must be 0 or more."));
  training_->rates_.lr = lr;
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
