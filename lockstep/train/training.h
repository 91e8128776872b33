/// A training loop of one's own with the same bits on any number of ranks, its state divided among
/// them: the model may be larger than a rank.
///
///   lockstep::Training t(world, {.global_batch = 64, .micro_batch = 8, .shard =
///   lockstep::Shard::zero3}); auto net = t.build<Net>(cfg); auto opt = t.adamw(net, {.lr = 3e-4});
///   for (auto& step : t.steps(dataset, 1000)) {
///     for (auto& mb : step) step.backward(sum_loss(net->forward(mb.x), mb.y),
///     /*weight=*/mb.tokens); opt.step(step);
///   }
///   t.save("ckpt");  lockstep::print(t.digest());
///
/// and another program, on any layout, goes on from there: t.load("ckpt") behind t.adamw.
///
/// What the loop owes for equal bits: the loss of a micro-batch is a sum over its terms (tokens,
/// samples), neither averaged nor divided, and depends on the micro-batch alone. `torch::dropout`
/// is reseeded for each micro-batch. What is given for it: `step.backward` divides by the terms of
/// the whole step, which are known before the first backward; sums over ranks follow the sum tree;
/// start values are drawn by parameter name; `net` is divided, gathered, reduced as TrainingOptions
/// say.
///
/// Source  docs/concepts/training_loop.md
#pragma once

#include <ATen/core/Generator.h>
#include <torch/data/datasets/base.h>
#include <torch/nn/module.h>

#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/rank_context.h"
#include "lockstep/input/sample_order.h"
#include "lockstep/plan/numeric_identity.h"
#include "lockstep/plan/run_layout.h"
#include "lockstep/precision/loss_scaler.h"
#include "lockstep/torch_inside/deferred.h"
#include "lockstep/train/checkpointer.h"
#include "lockstep/train/layer_list.h"
#include "lockstep/train/model_state.h"

namespace lockstep {

using plan::Reshard;
using plan::Shard;

struct TrainingOptions {
  int64_t global_batch = 16;  // samples in one optimizer step, all ranks
  int64_t micro_batch = 4;    // samples in one forward call
  int grains = 0;             // leaves of a step, the units of parallel work; 0: up to 8
  Shard shard = Shard::none;  // what ranks divide
  int replicas = 1;           // groups of ranks that each hold all shards
  int prefetch = 1;           // units gathered ahead, with zero3
  Reshard reshard = Reshard::automatic;
  /// What lives in a file in `offload_folder` while it is not at work.
  plan::Offload offload = {};
  std::string offload_folder = ".";
  uint64_t seed = 1337;  // of start values, sample order and dropout
  bool shuffle = true;
  /// What Lockstep's layers compute with; other modules are what they are.
  plan::Arithmetic arithmetic = {.fused = true};
  /// What losses are multiplied by before backward, for nets that compute in 16 bits. A dynamic
  /// scale is halved where gradients overflow, and the step is left out (TrainingStep::taken).
  precision::LossScalerOptions loss_scale = {};
  /// How the parameter at a path is drawn; not set: tensors of two or more dimensions normal,
  /// 1 / sqrt(elements a row); vectors whose name ends in "weight" ones; everything else zeros.
  std::function<plan::Init(const std::string& path)> init_of = {};
  // Of a model that is built as layers over a Mesh.
  std::string schedule = "1f1b";  // of the stages' work: plan/pipeline_schedule.h
  int chunks = 1;                 // pieces of the model on each stage
  bool sequence = false;          // tensor-parallel ranks divide the sequence between layers
  int tensor_grains = 0;          // that layers are computed in; 0: the tensor-parallel ranks
};

/// The ranks of a job as a grid with the axes dp, pp and tp, in any order and number.
struct Mesh {
  /// "dp=2 pp=2 tp=2", outermost first. Throws UsageError: not as many ranks as `world` has, or
  /// another axis.
  static Mesh parse(const std::string& text, std::shared_ptr<ProcessGroup> world);

  plan::Mesh axes;
  std::shared_ptr<ProcessGroup> world;
};

struct TrainingRates {
  double lr = 1e-3;
  double grad_clip = 1.0;  // largest norm of the gradient; 0: no clipping
  /// Parameters with a rate or decay rule of their own; the first pattern that fits counts.
  std::vector<optim::ParamGroup> groups = {};
};

struct TrainingOptimizerOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;                   // of tensors of two or more dimensions
  double grad_clip = 1.0;                      // largest norm of the gradient; 0: no clipping
  std::vector<optim::ParamGroup> groups = {};  // as in TrainingRates
};

/// One call's worth of samples of this rank.
struct TrainingBatch {
  at::Tensor x;
  at::Tensor y;
  int64_t tokens = 0;  // terms of its loss: elements of y
};

class TrainingStep {
 public:
  /// This rank's micro-batches, one after the other: `backward` of one comes before the next.
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = TrainingBatch;
    using difference_type = std::ptrdiff_t;
    explicit Iterator(TrainingStep* step) : step_(step) { ++*this; }
    TrainingBatch& operator*() const { return step_->batch_; }
    Iterator& operator++() {
      if (!step_->advance()) step_ = nullptr;
      return *this;
    }
    bool operator==(std::default_sentinel_t) const { return step_ == nullptr; }

   private:
    TrainingStep* step_;
  };
  Iterator begin() { return Iterator(this); }
  std::default_sentinel_t end() { return {}; }

  /// In place of loss.backward(). `loss` is the sum over the micro-batch's terms, or their tensor;
  /// `weight` how many there are. Throws UsageError: not the terms that the step was planned with,
  /// or no micro-batch is open.
  void backward(const at::Tensor& loss, int64_t weight);

  /// In place of a loop over micro-batches: all of this rank's part of a step, for a net of layers.
  void run(const std::shared_ptr<LayerNet>& net, const LayerLoss& loss);

  int64_t number() const { return number_; }  // from 0
  /// After the optimizer's step: the mean over the step's terms, of all ranks.
  double loss() const { return loss_; }
  double grad_norm() const { return grad_norm_; }  // of the gradients themselves, unscaled
  /// False: the gradients overflowed, no parameter changed, and the next step has another scale.
  bool taken() const { return taken_; }

 private:
  friend class Training;
  friend class TrainingSteps;
  friend class TrainingOptimizer;
  bool advance();

  class Training* training_ = nullptr;
  int64_t number_ = 0;
  TrainingBatch batch_;
  bool open_ = false;       // a micro-batch waits for its backward
  bool finished_ = false;   // the optimizer has taken its step
  bool exhausted_ = false;  // no micro-batch is left
  double loss_ = 0;
  double grad_norm_ = 0;
  bool taken_ = false;
};

/// The steps of a run, one after the other.
class TrainingSteps {
 public:
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = TrainingStep;
    using difference_type = std::ptrdiff_t;
    explicit Iterator(TrainingSteps* steps) : steps_(steps) {}
    TrainingStep& operator*() const { return steps_->step_; }
    Iterator& operator++();
    bool operator==(std::default_sentinel_t) const;

   private:
    TrainingSteps* steps_;
  };
  Iterator begin();
  std::default_sentinel_t end() { return {}; }

 private:
  friend class Training;
  class Training* training_ = nullptr;
  int64_t end_ = 0;  // number of the last step + 1
  TrainingStep step_;
};

class TrainingOptimizer {
 public:
  /// Takes the step, when all micro-batches had their backward: gradients are unscaled and clipped
  /// here, once. Throws UsageError: not all had, or it was called before for this step.
  void step(TrainingStep& step);
  /// For the steps from now on. Groups have their multiples of it.
  void set_lr(double lr);

 private:
  friend class Training;
  explicit TrainingOptimizer(class Training* training) : training_(training) {}
  class Training* training_;
};

struct TrainingSave {
  /// From a copy, while steps go on; what goes wrong is an error of the next save.
  bool async = false;
};

struct TrainingLoad {
  /// On another number of ranks nobody knows whose generator is whose: without this it is refused.
  bool forget_generators = false;
};

class Training {
 public:
  /// All ranks of `world` make it alike. Throws UsageError: batch or layout do not fit.
  Training(std::shared_ptr<ProcessGroup> world, const TrainingOptions& options);
  /// The same for a model that is cut and divided over the axes of a mesh.
  Training(const Mesh& mesh, const TrainingOptions& options);
  ~Training();
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  /// A module whose parameters have no memory until its optimizer gives each rank its share.
  template <class M, class... Arguments>
  std::shared_ptr<M> build(Arguments&&... arguments) {
    return torch_inside::deferred(
        [&] { return std::make_shared<M>(std::forward<Arguments>(arguments)...); });
  }

  /// The layers that `add` lists, of which this rank makes its own; the layout is the mesh's.
  std::shared_ptr<LayerNet> build_layers(const std::function<void(Layers&)>& add);

  /// Draws the start values and makes the optimizer; once. `ties` as in Task::ties. Parameters are
  /// float32. From here on the module's parameters belong to this object, which must outlive its
  /// use.
  TrainingOptimizer adamw(const std::shared_ptr<torch::nn::Module>& module,
                          const TrainingOptimizerOptions& options,
                          const std::vector<plan::Tie>& ties = {});

  /// The same with any optimizer: `t.optimizer(net, optim::LambOptions{}, {.lr = 2e-3})`.
  TrainingOptimizer optimizer(const std::shared_ptr<torch::nn::Module>& module,
                              const optim::OptimizerOptions& options,
                              const TrainingRates& rates = {},
                              const std::vector<plan::Tie>& ties = {});

  /// Steps over samples of `dataset`: `get(index)` gives {data, target}, `size()` how many there
  /// are. Every sample has the same shapes. Goes on where the steps before ended.
  template <class Dataset>
  TrainingSteps steps(Dataset& dataset, int64_t count) {
    return steps_over(
        static_cast<int64_t>(*dataset.size()),
        [&dataset](int64_t index) { return dataset.get(static_cast<size_t>(index)); }, count);
  }

  /// Runs a forward without gradients, such as an evaluation. All ranks call it, each with as many
  /// forwards as the others: parameters are gathered for it.
  void without_gradients(const std::function<void()>& forward);

  /// A checkpoint at `folder` (docs/concepts/checkpoints.md), with all that the next step depends
  /// on; an older one there is replaced when the new one is whole. All ranks call it, between
  /// steps. Throws StateError: it could not be written, or the save before failed.
  void save(const std::string& folder, const TrainingSave& options = {});
  /// Until the checkpoint that was begun last is complete. All ranks call it. Throws StateError.
  void finish_saving();
  /// Goes on from a checkpoint, saved on whatever layout: steps have the bits of the run that was
  /// not interrupted. All ranks call it, between steps, when the optimizer is made. Throws
  /// StateError naming file and reason on all ranks, and nothing has changed; UsageError: it is of
  /// another batch, seed or optimizer, or has generators that cannot be given back.
  void load(const std::string& folder, const TrainingLoad& options = {});
  /// A generator of the user's own on this rank, whose state is a part of checkpoints. Lockstep's
  /// own draws need none: they follow the samples.
  void keep_generator(const std::string& name, at::Generator generator);
  /// Every logical parameter, fp32, in one safetensors file. All ranks call it.
  void save_model(const std::string& path);
  /// Of all parameters; the same on any layout. All ranks call it.
  std::string digest();

  /// The draws of a micro-batch's own randomness (models/dropout.h).
  const RankContext& context() const { return context_; }
  ModelState& state();
  /// Its state is a part of a checkpoint.
  precision::LossScaler& loss_scaler() { return scaler_; }

 private:
  friend class TrainingStep;
  friend class TrainingSteps;
  friend class TrainingOptimizer;

  using Sample = torch::data::Example<>;
  TrainingSteps steps_over(int64_t size, std::function<Sample(int64_t)> get, int64_t count);
  TrainingBatch read(const plan::Round& round);
  /// Of each term of a step's loss.
  double weight_of_term() const {
    return scaler_.scale() / static_cast<double>(options_.global_batch * terms_);
  }

  TrainingOptions options_;
  RankContext context_;
  void plan_step(const plan::RankPlace& place);
  plan::NumericIdentity identity() const;
  nlohmann::json run_state() const;
  nlohmann::json order_json() const;  // of the dataset; null: there is none yet
  Checkpointer& checkpointer(bool async);

  plan::StepInputs inputs_;
  plan::RankPlace place_;
  plan::PipelineOptions pipeline_;
  std::shared_ptr<torch::nn::Module> module_;
  std::shared_ptr<LayerNet> net_;  // the same, of layers
  std::unique_ptr<ModelState> state_;
  TrainingRates rates_;
  precision::LossScaler scaler_;
  input::SampleOrder order_;
  std::function<Sample(int64_t)> get_;
  int64_t terms_ = 0;  // of a sample
  int64_t steps_done_ = 0;
  nlohmann::json order_saved_;  // that a checkpoint counted in; null: there was none
  std::map<std::string, at::Generator> generators_;
  std::unique_ptr<Checkpointer> checkpointer_;
  bool saves_async_ = false;  // the one there is
};

/// Writes a line to standard output, on the rank that calls it.
void print(const std::string& text);

}  // namespace lockstep
