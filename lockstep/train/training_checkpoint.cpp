// How a loop of one's own is saved, and goes on.
#include <ATen/ops/from_blob.h>

#include <filesystem>
#include <mutex>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/folder.h"
#include "lockstep/train/checkpoint_load.h"
#include "lockstep/train/kernel_probe.h"
#include "lockstep/train/model_file.h"
#include "lockstep/train/training.h"

namespace lockstep {
namespace {

constexpr double kTimeoutSeconds = 600;

std::string hex_of(const at::Tensor& bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (int64_t i = 0; i < bytes.numel(); ++i) {
    const uint8_t byte = bytes.data_ptr<uint8_t>()[i];
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::vector<uint8_t> bytes_of(const std::string& hex) {
  const auto digit = [&hex](size_t at) -> uint8_t {
    const char c = hex[at];
    if (c >= '0' && c <= '9') return static_cast<uint8_t>(c - '0');
    if (c >= 'a' && c <= 'f') return static_cast<uint8_t>(c - 'a' + 10);
    throw StateError("the state of a generator cannot be read.");
  };
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(digit(i) << 4 | digit(i + 1)));
  }
  return bytes;
}

std::string states_of(std::map<std::string, at::Generator>& generators) {
  if (generators.empty()) return {};
  nlohmann::json states = nlohmann::json::object();
  for (auto& [name, generator] : generators) {
    const std::lock_guard lock(generator.mutex());
    states[name] = hex_of(generator.get_state());
  }
  return states.dump();
}

void give_back(const std::string& states, std::map<std::string, at::Generator>& generators) {
  const nlohmann::json json = nlohmann::json::parse(states);
  for (auto& [name, generator] : generators) {
    if (!json.contains(name)) {
      throw UsageError(base::str("Training: the checkpoint has no generator \"", name, "\"."));
    }
    std::vector<uint8_t> bytes = bytes_of(json[name].get<std::string>());
    const std::lock_guard lock(generator.mutex());
    generator.set_state(
        at::from_blob(bytes.data(), {static_cast<int64_t>(bytes.size())}, at::kByte));
  }
}

}  // namespace

plan::NumericIdentity Training::identity() const {
  return {.batch = inputs_.batch,
          .tensor_grains = context_.tensor.grains,
          .compute = std::string(plan::name_of(options_.arithmetic.compute)),
          .kernel_set = kernel_set(options_.arithmetic.fused),
          .instruction_set = instruction_set()};
}

nlohmann::json Training::order_json() const {
  if (order_.size == 0) return {};
  return {{"samples", order_.size}, {"seed", order_.seed}, {"shuffle", order_.shuffle}};
}

nlohmann::json Training::run_state() const {
  return {{"optimizer_steps", state_->optimizer().steps_taken()},
          {"loss_scaler", scaler_.state()},
          {"order", order_.size > 0 ? order_json() : order_saved_},
          {"optimizer", plan::traits_of(state_->inputs().optimizer).name},
          {"seed", options_.seed}};
}

/// One at a time, of the kind that was asked for last.
Checkpointer& Training::checkpointer(bool async) {
  if (checkpointer_ && saves_async_ == async) return *checkpointer_;
  if (checkpointer_) checkpointer_->finish();
  checkpointer_ = std::make_unique<Checkpointer>(
      CheckpointerOptions{.async = async, .timeout_s = kTimeoutSeconds}, state(),
      /*average=*/nullptr, context_);
  saves_async_ = async;
  return *checkpointer_;
}

void Training::save(const std::string& folder, const TrainingSave& options) {
  state();
  const std::filesystem::path path = std::filesystem::absolute(folder).lexically_normal();
  const std::filesystem::path target = path.has_filename() ? path : path.parent_path();
  checkpointer(options.async)
      .save(target.string(), {.step = steps_done_,
                              .config = {},
                              .vocab = 0,
                              .identity = identity().text(),
                              .state = run_state(),
                              .rank_state = states_of(generators_)});
}

void Training::finish_saving() {
  if (checkpointer_) checkpointer_->finish();
}

void Training::keep_generator(const std::string& name, at::Generator generator) {
  generators_.insert_or_assign(name, std::move(generator));
}

void Training::load(const std::string& folder, const TrainingLoad& options) {
  ModelState& model = state();
  const checkpoints::Manifest manifest = checkpoints::read_manifest(folder);
  const std::string own = identity().text();
  if (manifest.identity != own) {
    throw UsageError(base::str("Training: ", folder, " is of a run of the identity ",
                               manifest.identity, ", this one's is ", own,
                               ": its steps would have other bits.\n  Give the batch, grains and "
                               "kernels that it was saved with."));
  }
  const auto ranks = static_cast<size_t>(context_.world->size());
  const std::vector<std::string>& states = manifest.rank_states;
  const bool give = !generators_.empty() && !options.forget_generators;
  if (give && states.size() != ranks) {
    throw UsageError(base::str(
        "Training: ", folder, " has generators of ", states.size(), " ranks, these are ", ranks,
        ": which rank should go on with which?\n  Seed them anew and load with "
        "forget_generators = true; Lockstep's own draws do not depend on ranks."));
  }
  precision::LossScaler scaler = scaler_;
  int64_t optimizer_steps = 0;
  try {
    const nlohmann::json& saved = manifest.state;
    const std::string optimizer{plan::traits_of(model.inputs().optimizer).name};
    if (saved.at("optimizer") != optimizer || saved.at("seed") != options_.seed) {
      throw UsageError(base::str("Training: ", folder, " was saved with ",
                                 saved["optimizer"].get<std::string>(), " and seed ",
                                 saved.at("seed").dump(), ", this is ", optimizer, " and seed ",
                                 options_.seed, "."));
    }
    scaler.restore(saved.at("loss_scaler"));
    optimizer_steps = saved.at("optimizer_steps").get<int64_t>();
    order_saved_ = saved.at("order");
  } catch (const nlohmann::json::exception& error) {
    throw StateError(
        base::str(folder, ": it is no checkpoint of a lockstep::Training (", error.what(), ")."));
  }
  load_checkpoint(folder, model, /*average=*/nullptr, context_);
  if (give) give_back(states[static_cast<size_t>(context_.world->rank())], generators_);
  model.optimizer().set_steps_taken(optimizer_steps);
  scaler_ = scaler;
  steps_done_ = manifest.step;
}

void Training::save_model(const std::string& path) {
  const std::string sum = digest();
  if (context_.world->rank() == 0) {
    save_parameters(path, state().whole(),
                    {{"param_digest", sum}, {"step", std::to_string(steps_done_)}});
  } else if (state().has_saved_replica()) {
    help_to_save(state().whole());
  }
  context_.world->barrier();
}

}  // namespace lockstep
