#include "lockstep/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/plan/engines.h"
#include "lockstep/plan/fitting.h"
#include "lockstep/plan/part_traffic.h"
#include "lockstep/plan/run_layout.h"
#include "lockstep/torch_inside/gemm_counter.h"
#include "lockstep/train/data_groups.h"
#include "lockstep/train/detail/warmup.h"
#include "lockstep/train/evaluation.h"
#include "lockstep/train/frozen.h"
#include "lockstep/train/kernel_probe.h"
#include "lockstep/train/model_file.h"
#include "lockstep/train/param_digest.h"
#include "lockstep/train/replicas.h"
#include "lockstep/train/start_weights.h"
#include "lockstep/train/synthetic_task.h"

namespace lockstep {
namespace {

optim::Schedule schedule_of(const plan::TrainConfig& config) {
  return {
      .peak = optim::scaled_rate(config.optim.lr, config.optim.base_batch, config.data.global_batch,
                                 optim::batch_scaling_of(config.optim.lr_scaling)),
      .warmup_steps = config.optim.warmup_steps,
      .steps = std::max<int64_t>(1, config.run.steps),
      .decay = optim::decay_of(config.optim.decay),
      .min_ratio = config.optim.min_lr_ratio};
}

}  // namespace

Trainer::Trainer(const TrainerOptions& options, net::Endpoint& endpoint)
    : options_(options),
      config_(options_.config),
      endpoint_(endpoint),
      account_(memory::Account::open()) {
  const memory::AccountScope accounted(account_);
  endpoint_.set_status(-1, "start");
  const std::shared_ptr<net::Group> world = endpoint_.world();
  plan::check(config_, world->size());
  ramp_ = plan::ramp_of(config_);
  guard_ = StepGuard(config_);
  context_.world = std::make_shared<ProcessGroup>(world);
  context_.seed = static_cast<uint64_t>(config_.run.seed);
  require_alike(*context_.world);
  require_products(config_);
  place_ = plan::place_in(config_, world->size(), world->rank());
  const auto data = static_cast<int>(place_.dp.size());
  plan::StepInputs inputs;
  inputs.batch = plan::batch_of(config_);
  inputs.leaves = plan::leaves_of(config_, data);
  inputs.overlap = config_.comm.overlap;
  plan::set_pipeline(inputs, config_, place_.stage);
  context_.tensor = plan::tensor_place_of(config_, place_.tensor);
  context_.sequence = plan::context_place_of(config_, place_.context);
  make_groups(context_, plan::shard_options_of(config_, data), place_);
  choose_algorithm(inputs);
  identity_ = {.batch = inputs.batch,
               .tensor_grains = context_.tensor.grains,
               .compute = config_.precision.compute,
               .kernel_set = kernel_set(config_),
               .instruction_set = instruction_set()};
  {
    // Before there is a limit: its matrices are no part of the run.
    at::Tensor peak = at::full(
        {1}, measure_gemm_peak(plan::parse_compute_type(config_.precision.compute)), at::kDouble);
    context_.world->all_reduce(peak).wait();
    gemm_peak_ = peak.item<double>();
  }
  make_state(std::move(inputs));
  schedule_ = schedule_of(config_);
  optim::check(schedule_);
  if (config_.optim.ema > 0) {
    average_ = std::make_unique<ParamAverage>(*state_, config_.optim.ema);
  }
  if (guard_.rewinds()) copy_ = std::make_unique<StateCopy>(*state_, average_.get());
  if (config_.log.noise_scale) noise_ = std::make_unique<NoiseScale>(*state_, *context_.world);

  flops_per_term_ = task_->flops_per_term();

  make_checkpointer();
  if (!options_.resume_from.empty()) resume();
  if (context_.world->rank() == 0) open_log();
}

void Trainer::make_state(plan::StepInputs inputs) {
  const auto mebibytes = [](double mb) {
    return static_cast<int64_t>(mb * static_cast<double>(MiB));
  };
  const std::string& folder = config_.memory.offload_dir;
  std::vector<plan::ModelChunk> chunks;  // that this rank holds
  {
    const memory::KindScope kind(memory::Kind::parameters);
    models::ModelPart part{.chunks = {}, .tensor = context_.tensor, .sequence = context_.sequence};
    if (inputs.pipelined()) part.chunks = plan::chunks_of(config_, place_.stage);
    chunks = part.chunks.empty() ? plan::cut_layers(config_.model.layers, 1) : part.chunks;
    const std::string& synthetic = config_.run.synthetic_compute;
    if (synthetic.empty()) {
      task_ = make_task(config_, options_.tasks, part);
      freeze(*task_, config_.optim.frozen, context_);
    } else {
      if (part.chunks.empty()) part.chunks = plan::cut_layers(config_.model.layers, 1);
      task_ = std::make_shared<SyntheticTask>(plan::parse_synthetic(synthetic),
                                              config_.data.global_batch, part.chunks);
    }
  }
  const plan::GrainPlaces grains{context_.tensor, context_.sequence};
  inputs.context_bytes = plan::context_traffic(config_, chunks, grains);
  std::shared_ptr<StageMessages> messages;
  if (inputs.pipelined()) {
    messages =
        std::make_shared<StageMessages>(*context_.world, place_.stages, inputs.schedules.front());
  }
  limit_memory();
  state_ = std::make_unique<ModelState>(
      task_->module(), task_->ties(),
      [this](const std::string& path) { return task_->init_of(path); },
      ModelStateOptions{
          .shard = plan::shard_options_of(config_, context_.dp->size()),
          .offload = plan::offload_of(config_),
          .offload_folder = folder.empty() ? options_.run_folder : folder,
          .first_bucket_bytes = mebibytes(config_.comm.first_bucket_mb),
          .bucket_bytes = mebibytes(config_.comm.bucket_mb),
          .optimizer = optim::options_of(config_),
          .slice_of = [this](const std::string& path) { return task_->slice_of(path); },
          .chunk_of = [this](const std::string& path) { return task_->chunk_of(path); },
          .messages = messages,

          .has_losses = has_losses(inputs),
          .message_bytes = plan::message_traffic(config_, grains),
          .tensor_bytes = plan::tensor_traffic(config_, chunks, grains),
          .running_values = task_->running_values()},
      context_, std::move(inputs));
  timeline_ = std::make_unique<Timeline>(state_->inputs(), place_, config_.log.trace_steps);
  if (!options_.witness_folder.empty()) {
    witness_ = std::make_unique<WitnessRecorder>(options_.witness_folder, options_.witness_from,
                                                 *state_, context_, place_.tensor == 0);
  }
  if (options_.resume_from.empty()) start_from_weights(config_, task_->vocab(), *state_);
  offload_activations();
}

/// Room for what a micro-batch keeps, half of it more for what the form does not know.
void Trainer::offload_activations() {
  if (!plan::offload_of(config_).activations) return;
  const int64_t planned =
      plan::planned_memory(config_, state_->inputs(), context_.dp->rank()).activations;
  const int64_t room = std::max<int64_t>(256 * MiB, planned + planned / 2);
  const std::string& folder = config_.memory.offload_dir;
  activations_ = std::make_unique<memory::ActivationStore>(
      std::make_shared<files::BlockFile>(folder.empty() ? options_.run_folder : folder, room), 0,
      room,
      memory::ActivationStoreOptions{.in_flight_bytes =
                                         std::clamp<int64_t>(planned / 8, 1 * MiB, 64 * MiB)});
}

/// memory.limit_mb, and what an error says that would pass it.
void Trainer::limit_memory() {
  if (config_.memory.limit_mb == 0) return;
  const int64_t limit = config_.memory.limit_mb * MiB;
  account_.set_limit(limit, [this, limit] {
    std::vector<plan::ParamDeclaration> declared;
    for (const auto& item : task_->module().named_parameters(/*recurse=*/true)) {
      if (plan::is_further_grain(context_.sequence.local, item.key())) continue;
      declared.push_back({.name = item.key(),
                          .shape = item.value().sizes().vec(),
                          .trainable = item.value().requires_grad(),
                          .init = {}});
    }
    return plan::settings_within(config_,
                                 plan::make_param_table(declared, task_->ties(), /*is_part=*/true),
                                 context_.dp->size(), limit);
  });
}

Trainer::~Trainer() { account_.close(); }

TrainResult Trainer::run() {
  const memory::AccountScope accounted(account_);
  const memory::KindScope kind(memory::Kind::activations);
  account_.reset_peaks();
  try {
    return train_to_the_end();
  } catch (const std::exception& error) {
    // Before this rank's groups go: peers shall quote the cause, not that a collective ended.
    const auto* ours = dynamic_cast<const Error*>(&error);
    endpoint_.fail(error.what(), ours != nullptr ? ours->exit_code() : 1);
    throw;
  }
}

TrainResult Trainer::train_to_the_end() {
  TrainResult result;
  for (ProcessGroup* group : groups_of(context_)) group->reset_totals();
  if (state_->messages() != nullptr) state_->messages()->reset_totals();
  gemm_flops_at_start_ = torch_inside::gemm_flops_of_this_thread();
  int64_t done = first_step_;
  if (lacks_evaluation()) result.stopped = !evaluate_at(done);
  while (done < config_.run.steps && !result.stopped) {
    train_step(done);
    ++done;
    // Early, and once more at the end: a buffer that follows this rank's samples differs at once.
    if (done == first_step_ + 1 || done == config_.run.steps) {
      require_equal_bits(*context_.peers, buffers_of(task_->module()));
    }
    const bool last = done == config_.run.steps;
    if (config_.run.check_every > 0 && (last || done % config_.run.check_every == 0)) {
      require_equal_replicas();
    }
    const Requests requests = agree_on_requests();
    result.stopped = (requests.stop || done == options_.stop_after) && !last;
    checkpoint_if_due(done, requests);
    if (evaluation_due(done) && !result.stopped) result.stopped = !evaluate_at(done);
  }
  if (result.stopped) save_checkpoint(done);
  finish_checkpoints();
  digest_ = state_->digest();
  // First what cannot be made again, then what can.
  save(done, "final.safetensors", digest_);
  if (average_) save_average(done);
  if (!checkpoint_failure_.empty()) {
    context_.world->barrier();  // a rank that fails ends its peers, who may still be saving
    throw StateError(checkpoint_failure_);
  }
  require_log();
  report_profile();
  report_timeline();
  if (!result.stopped) result.stopped = !evaluate_at(done);

  const std::string summary = summarize(done, result.stopped);
  if (context_.world->rank() == 0) {
    result.summary = summary;
    const std::string path = options_.run_folder + "/summary.json";
    std::ofstream out(path);
    out << summary << '\n' << std::flush;
    if (!out) throw StateError(base::str(path, ": cannot be written. Free space on the disk."));
    if (result.stopped) log_->say(base::str("stopped on request after step ", done));
    log_->say(
        base::str("saved ", options_.run_folder, "/final.safetensors, param_digest ", digest_));
    require_log();  // the last evaluation's line
  }
  context_.world->barrier();
  return result;
}

/// Of the reduces, which the plan of their bytes follows. What is forced goes before a table.
void Trainer::choose_algorithm(plan::StepInputs& inputs) {
  net::Group& dp = context_.dp->group();
  if (config_.comm.algorithm != "auto") {
    dp.set_algorithms(
        {.rules = {{plan::Collective::all_reduce, plan::parse_algorithm(config_.comm.algorithm)}},
         .hosts = {}});
  } else if (!config_.algorithms.rules.empty()) {
    dp.set_algorithms(config_.algorithms);
  }
  inputs.algorithms = dp.algorithms();
  inputs.sends_messages = plan::sends_messages(config_.comm.engine);
}

void Trainer::save(int64_t steps_done, const std::string& file, const std::string& digest) {
  endpoint_.set_status(steps_done, "save");
  const plan::GroupBytes before = moved();
  if (context_.world->rank() == 0) {
    save_model(options_.run_folder + "/" + file, state_->whole(),
               {.config = config_,
                .vocab = task_->vocab(),
                .identity = identity_.text(),
                .param_digest = digest,
                .step = steps_done});
  } else if (state_->has_saved_replica()) {
    help_to_save(state_->whole());  // what rank 0's replica holds comes together, for it to write
  }
  count_outside(before);
}

plan::GroupBytes Trainer::moved() const {
  const auto bytes_of = [](const std::shared_ptr<ProcessGroup>& group) {
    return group ? group->totals().bytes : 0;
  };
  return {.gather = bytes_of(context_.gather),
          .tp = bytes_of(context_.tp),
          .cp = bytes_of(context_.cp),
          .pp = state_->messages() != nullptr ? state_->messages()->totals().bytes : 0,
          .model = bytes_of(context_.model)};
}

void Trainer::count_outside(const plan::GroupBytes& before) {
  const plan::GroupBytes now = moved();
  outside_.gather += now.gather - before.gather;
  outside_.model += now.model - before.model;
  outside_.tp += now.tp - before.tp;
  outside_.cp += now.cp - before.cp;
  outside_.pp += now.pp - before.pp;
}

/// The parameters are the average until it is called again.
void Trainer::swap_average() {
  const plan::GroupBytes before = moved();
  average_->swap();
  count_outside(before);
}

void Trainer::save_average(int64_t steps_done) {
  swap_average();
  average_digest_ = state_->digest();
  save(steps_done, "ema.safetensors", average_digest_);
  swap_average();
}

bool Trainer::evaluation_due(int64_t done) const {
  return config_.log.eval_every > 0 && done % config_.log.eval_every == 0 &&
         done != config_.run.steps;
}

/// The run was stopped or killed between a checkpoint and the evaluation behind it.
bool Trainer::lacks_evaluation() {
  if (first_step_ == 0 || !evaluation_due(first_step_)) return false;
  at::Tensor lacks = at::full({1}, log_ && log_->last_evaluation() < first_step_ ? 1 : 0, at::kInt);
  context_.world->all_reduce(lacks, ReduceOp::max).wait();
  return lacks.item<int>() != 0;
}

bool Trainer::evaluate_at(int64_t done) {
  if (task_->validation_samples() == 0) return true;
  endpoint_.set_status(done, "evaluation");
  std::optional<EvaluationResult> evaluated = evaluate();
  if (!evaluated) return false;
  val_loss_ = evaluated->loss;
  val_accuracy_ = evaluated->accuracy;
  if (average_) {
    swap_average();
    evaluated = evaluate();
    swap_average();
    if (!evaluated) return false;
    val_loss_average_ = evaluated->loss;
  }
  if (log_) log_->evaluation(done, val_loss_, val_loss_average_, val_accuracy_);
  return true;
}

/// Of the parameters as they are; nothing: it was stopped on request.
std::optional<EvaluationResult> Trainer::evaluate() {
  const plan::GroupBytes before = moved();
  const EvaluationResult evaluated =
      lockstep::evaluate(*task_,
                         {.samples = config_.data.eval_batches * config_.data.global_batch,
                          .micro_batch = config_.data.micro_batch,
                          .stop = [this] { return stop_agreed(); },
                          .rank = context_.dp->rank(),
                          .ranks = context_.dp->size(),
                          .has_losses = has_losses(state_->inputs()),
                          .pass = stage_pass(),
                          .run_forward = run_forward()},
                         context_);
  count_outside(before);
  // The plan knows what divided parameters move in a forward.
  outside_.gather -= moved().gather - before.gather;
  if (evaluated.stopped) return std::nullopt;
  return evaluated;
}

/// One rank of all that compute the same samples brings their losses.
bool Trainer::has_losses(const plan::StepInputs& inputs) const {
  if (place_.tensor != 0) return false;
  if (!inputs.pipelined()) return true;
  const plan::PipelineSchedule& shape = inputs.schedules.front();
  return shape.stage_of(shape.virtual_stages() - 1) == place_.stage;
}

std::function<at::Tensor(const EvaluationOptions::RunChunk&)> Trainer::stage_pass() {
  if (state_->flow() == nullptr) return {};
  return [this](const EvaluationOptions::RunChunk& run) { return state_->flow()->pass(run); };
}

/// Divided parameters are gathered for an evaluation, too.
std::function<void(const std::function<void()>&)> Trainer::run_forward() {
  if (state_->params().units() == nullptr) return {};
  return [this](const std::function<void()>& forward) {
    state_->runner().run_forward(forward);
    ++forwards_;
  };
}

/// Ranks that hold the same have the same bits.
void Trainer::require_equal_replicas() {
  if (state_->params().units() == nullptr) {
    std::vector<NamedTensor> parameters = parameters_of(task_->module());
    // Further grains share the storage of the first; another rank may have more of them.
    std::erase_if(parameters, [this](const NamedTensor& parameter) {
      return plan::is_further_grain(context_.sequence.local, parameter.name);
    });
    require_equal_bits(*context_.peers, parameters);
    return;
  }
  // By the world, so that the groups' ledgers hold what steps and evaluations moved.
  const std::vector<std::string> of_world =
      context_.world->gather_text(state_->params().digest().text());
  std::vector<std::string> digests;
  for (const int rank : place_.dp) digests.push_back(of_world[static_cast<size_t>(rank)]);
  const int ranks = context_.gather->size();
  for (size_t rank = static_cast<size_t>(ranks); rank < digests.size(); ++rank) {
    const size_t first = rank % static_cast<size_t>(ranks);
    if (digests[rank] == digests[first]) continue;
    throw CommError(base::str("[rank ", context_.world->rank(), " of ", context_.world->size(),
                              "] the shards of ranks ", place_.dp[first], " and ", place_.dp[rank],
                              " differ, and they hold the same ones.\n  A rank computes otherwise "
                              "than its peers: compare their machines with lockstep doctor."));
  }
}

bool Trainer::stop_agreed() { return agree_on_requests().stop; }

/// On all ranks together: one may hear of a request a step before its peers.
Trainer::Requests Trainer::agree_on_requests() {
  const bool asked = options_.stop_requested != nullptr && options_.stop_requested->load();
  const bool failed = (log_ && !log_->failure().empty()) || !checkpoint_failure_.empty();
  at::Tensor mine = at::zeros({3}, at::kInt);
  mine[0] = asked || failed ? 1 : 0;
  mine[1] = options_.save_requests != nullptr ? options_.save_requests->load() : 0;
  mine[2] = checkpointer_->busy() ? 1 : 0;
  context_.world->all_reduce(mine, ReduceOp::max).wait();
  const int* const all = mine.data_ptr<int>();
  return {.stop = all[0] != 0, .saves = all[1], .saving = all[2] != 0};
}

}  // namespace lockstep
