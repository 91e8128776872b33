/// What a Trainer trains: a model, its samples, and the loss of samples. Lockstep's language models
/// are one task (language_task.h); a program of one's own brings others (worker/worker_main.h) and
/// has the same steps, the same layouts and the same bits.
///
/// Equal bits on any number of ranks rest on this: what `losses` gives for a sample depends on the
/// sample's number, the config and RankContext::sample_key, never on the rank or on the state of a
/// generator.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "lockstep/comm/rank_context.h"
#include "lockstep/input/sample_order.h"
#include "lockstep/models/language_model.h"
#include "lockstep/plan/batch_plan.h"
#include "lockstep/plan/param_table.h"
#include "lockstep/plan/train_config.h"
#include "lockstep/train/replicas.h"

namespace lockstep {

/// Samples first, first + 1, ... of the run: numbered from its start, through all epochs.
struct Samples {
  int64_t first = 0;
  int64_t count = 0;
  plan::Round round;  // the leaf and micro-batch that they are
};

/// Of validation samples.
struct ValidationScores {
  at::Tensor losses;  // of every term
  at::Tensor right;   // [count] bool; undefined: the task does not say
};

class Task {
 public:
  virtual ~Task() = default;

  /// Parameters float32 on the CPU; the trainer draws their values by `init_of`. Buffers are the
  /// same on all ranks after each step: constants, or what `end_step` writes. Running statistics
  /// that follow the samples of their rank are refused.
  virtual torch::nn::Module& module() = 0;
  /// Buffers that training changes, by their paths in the module tree, float32: the model file and
  /// the digest of parameters hold them, too.
  virtual std::vector<NamedTensor> running_values() { return {}; }
  /// How the start values of the parameter at `path` are drawn; unless a task says otherwise, by
  /// default_init.
  virtual plan::Init init_of(const std::string& path) const;
  /// Parameters that are further uses of another one.
  virtual std::vector<plan::Tie> ties() const { return {}; }

  /// Samples to train on: an epoch.
  virtual int64_t samples() const = 0;
  /// Passes over the data that the first `samples` samples of the run are.
  virtual double epochs(int64_t samples) const;
  /// Samples to evaluate on; 0: there is no evaluation.
  virtual int64_t validation_samples() const { return 0; }

  /// What the first `samples` samples of the run were, for a checkpoint: enough to tell whether a
  /// run that goes on counts in the same data.
  virtual nlohmann::json cursor(int64_t samples) const;
  /// Throws StateError naming what differs, if `saved`, from `cursor`, counts in other data.
  virtual void require_cursor(const nlohmann::json& saved) const;

  /// Numbers that each sample adds to the loss: the tokens of a sequence, 1 for a picture.
  virtual int64_t terms_per_sample() const { return 1; }
  /// What these are called where their rate is shown.
  virtual std::string unit() const { return "tokens"; }
  /// [count * terms_per_sample()]: the loss of every term, neither averaged nor divided.
  virtual at::Tensor losses(const Samples& samples, const RankContext& context) = 0;
  /// The same of validation samples first, first + 1, ... in an evaluation over `of` of them.
  virtual at::Tensor validation_losses(int64_t first, int64_t count, int64_t of,
                                       const RankContext& context);
  /// Whether `validate` says which samples were right: then evaluations report the share of them.
  virtual bool has_accuracy() const { return false; }
  /// What evaluation asks for; unless a task says more, the validation_losses alone.
  virtual ValidationScores validate(int64_t first, int64_t count, int64_t of,
                                    const RankContext& context);

  /// Where the model is cut into the pieces of a pipeline: the result of piece `chunk` of this rank
  /// for `input`, what the piece before gave (undefined for the model's first). The model's last
  /// gives the losses. A task that is not cut is one piece.
  virtual at::Tensor run_chunk(int chunk, const at::Tensor& input, const Samples& samples,
                               const RankContext& context);
  virtual at::Tensor run_validation_chunk(int chunk, const at::Tensor& input, int64_t first,
                                          int64_t count, int64_t of, const RankContext& context);
  /// The piece that the parameter at `path` belongs to, on this rank.
  virtual int chunk_of(const std::string& path) const;
  /// Which grain of a logical parameter the tensor at `path` is, where layers are divided.
  virtual plan::TensorSlice slice_of(const std::string& path) const;

  /// Floating-point operations of forward and backward for a term, for the model FLOP utilisation.
  /// Unless a task says otherwise: 6 for each parameter.
  virtual double flops_per_term() const;
  /// Token ids of a language model; 0 for anything else.
  virtual int64_t vocab() const { return 0; }

  /// What the steps first_step <= step < last_step will ask of `losses`, in order, from sample
  /// `first_sample` of the run on: a task that reads from files may begin to. Called again where
  /// steps become larger.
  virtual void start(const plan::BatchPlan& batch, const std::vector<plan::Round>& rounds,
                     int64_t first_step, int64_t last_step, int64_t first_sample);
  /// Before the first `losses` of each step.
  virtual void next_step() {}
  /// After each step whose update counted, on all ranks together: the place to bring running
  /// statistics up to date from what `losses` saw since `next_step`, in the same way on every rank.
  /// `context.peers` are the ranks that computed the step's leaves.
  virtual void end_step(const RankContext& context);
};

/// Makes a task from a run's settings; `model.options` is the program's own text.
using TaskFactory = std::function<std::shared_ptr<Task>(const plan::TrainConfig& config)>;
/// By model.family.
using TaskFactories = std::map<std::string, TaskFactory>;

/// The task of `config.model.family`: one of `own`, else one of Lockstep's. Throws UsageError
/// naming the families there are.
std::shared_ptr<Task> make_task(const plan::TrainConfig& config, const TaskFactories& own = {},
                                const models::ModelPart& part = {});

/// Tensors of two or more dimensions normal with standard deviation 1 / sqrt(elements a row);
/// vectors whose name ends in "weight" ones, as the gains of norms; everything else zeros.
plan::Init default_init(const torch::nn::Module& module, const std::string& path);

/// The rows of a dataset that `samples` are, as indices for index_select.
at::Tensor rows_of(const input::SampleOrder& order, const Samples& samples);

}  // namespace lockstep
