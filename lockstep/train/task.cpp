#include "lockstep/train/task.h"

#include <cmath>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/train/image_task.h"
#include "lockstep/train/language_task.h"

namespace lockstep {

plan::Init Task::init_of(const std::string& path) const {
  // A task that has its own rule never comes here; the module is not changed by being looked at.
  return default_init(const_cast<Task*>(this)->module(), path);
}

plan::Init default_init(const torch::nn::Module& module, const std::string& path) {
  const auto parameters = module.named_parameters(/*recurse=*/true);
  const at::Tensor& parameter = parameters[path];
  if (parameter.dim() >= 2) {
    const double per_row = static_cast<double>(parameter.numel()) /
                           static_cast<double>(std::max<int64_t>(1, parameter.size(0)));
    return {.kind = plan::Init::Kind::normal, .std = 1 / std::sqrt(std::max(1.0, per_row))};
  }
  if (path.ends_with("weight")) return {.kind = plan::Init::Kind::ones};
  return {.kind = plan::Init::Kind::zeros};
}

double Task::epochs(int64_t count) const {
  return static_cast<double>(count) / static_cast<double>(samples());
}

nlohmann::json Task::cursor(int64_t consumed) const {
  return {{"samples", consumed}, {"of", samples()}};
}

void Task::require_cursor(const nlohmann::json& saved) const {
  const nlohmann::json of = saved.is_object() ? saved.value("of", nlohmann::json()) : saved;
  if (of == samples()) return;
  throw StateError(base::str("the checkpoint counts in data of ", of.dump(),
                             " samples, this run's have ", samples(),
                             ": it would repeat some and leave others out."));
}

at::Tensor Task::validation_losses(int64_t, int64_t, int64_t, const RankContext&) {
  throw UsageError(
      "this task has validation_samples() but no validation_losses().\n  Override both or "
      "neither.");
}

ValidationScores Task::validate(int64_t first, int64_t count, int64_t of,
                                const RankContext& context) {
  return {.losses = validation_losses(first, count, of, context), .right = {}};
}

void Task::end_step(const RankContext&) {}

at::Tensor Task::run_chunk(int chunk, const at::Tensor&, const Samples& samples,
                           const RankContext& context) {
  LOCKSTEP_ASSERT(chunk == 0, "a task that is not cut is one piece");
  return losses(samples, context);
}

at::Tensor Task::run_validation_chunk(int chunk, const at::Tensor&, int64_t first, int64_t count,
                                      int64_t of, const RankContext& context) {
  LOCKSTEP_ASSERT(chunk == 0, "a task that is not cut is one piece");
  return validation_losses(first, count, of, context);
}

int Task::chunk_of(const std::string&) const { return 0; }

plan::TensorSlice Task::slice_of(const std::string&) const { return {}; }

double Task::flops_per_term() const {
  double count = 0;
  for (const at::Tensor& parameter : const_cast<Task*>(this)->module().parameters()) {
    count += static_cast<double>(parameter.numel());
  }
  return 6 * count;
}

void Task::start(const plan::BatchPlan&, const std::vector<plan::Round>&, int64_t, int64_t,
                 int64_t) {}

std::shared_ptr<Task> make_task(const plan::TrainConfig& config, const TaskFactories& own,
                                const models::ModelPart& part) {
  const std::string& family = config.model.family;
  const bool whole = part.chunks.empty() && part.tensor.grains == 1 && part.sequence.grains == 1;
  if (own.contains(family) && !whole) {
    throw UsageError(base::str(
        "model.family = \"", family,
        "\" is the program's own, which lockstep train neither cuts into "
        "stages nor divides.\n  This fits: --set parallel.pipeline=1 --set "
        "parallel.tensor=1 --set parallel.context=1; lockstep::Training::build_layers cuts a list "
        "of layers."));
  }
  if (const auto found = own.find(family); found != own.end()) {
    std::shared_ptr<Task> task = found->second(config);
    if (task) return task;
    throw UsageError(base::str("the program made no task for model.family = \"", family, "\"."));
  }
  if (family == "resnet") {
    if (whole) return ImageTask::open(config);
    throw UsageError(
        "model.family = \"resnet\" is neither cut into stages nor divided.\n  This fits: --set "
        "parallel.pipeline=1 --set parallel.tensor=1 --set parallel.context=1");
  }
  if (plan::is_family(family)) return LanguageTask::open(config, part);
  std::vector<std::string> names(plan::kFamilies.begin(), plan::kFamilies.end());
  for (const auto& entry : own) names.push_back(entry.first);
  throw UsageError(
      base::str("model.family = \"", family, "\": this program knows ", base::joined(names), "."));
}

at::Tensor rows_of(const input::SampleOrder& order, const Samples& samples) {
  at::Tensor rows = at::empty({samples.count}, at::kLong);
  auto* row = rows.data_ptr<int64_t>();
  for (int64_t i = 0; i < samples.count; ++i) {
    const int64_t number = samples.first + i;
    row[i] = order.at(number / order.size, number % order.size);
  }
  return rows;
}

}  // namespace lockstep
