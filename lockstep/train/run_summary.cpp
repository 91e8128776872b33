#include "lockstep/train/run_summary.h"

#include <vector>

#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

nlohmann::json by_kind(const memory::KindBytes& bytes) {
  nlohmann::json kinds = nlohmann::json::object();
  for (size_t i = 0; i < bytes.size(); ++i) kinds[memory::kKindNames[i]] = bytes[i];
  return kinds;
}

/// Under the names of the kinds that are counted. Activations are a form for decoders; 0 else.
nlohmann::json planned_by_kind(const plan::RankMemory& planned) {
  const plan::StateBytes& state = planned.state;
  return {{"parameters", state.parameters},
          {"gradients", state.gradients + state.leaf + state.side},
          {"optimizer", state.optimizer + planned.average + planned.copy},
          {"gathered", state.gathered},
          {"communication", planned.staging},
          {"activations", planned.activations},
          {"other", planned.checkpoint}};
}

}  // namespace

std::string run_summary(ProcessGroup& world, const RunTotals& run, const RankTotals& mine) {
  nlohmann::json own = {{"rank", world.rank()},
                        {"samples", mine.samples},
                        {"gemm_flops", mine.gemm_flops},
                        {"peak_bytes", by_kind(mine.peak_bytes)},
                        {"planned_peak_bytes", planned_by_kind(mine.planned)}};
  if (run.resumed) own["resumed_bytes"] = run.resumed->bytes_read;
  if (run.checkpoints.saves > 0) own["checkpoint_bytes"] = run.checkpoints.bytes;
  own["groups"] = nlohmann::json::array();
  for (const GroupTraffic& group : mine.groups) {
    own["groups"].push_back(group.name);
    own[group.name + "_bytes"] = group.totals.bytes;
    own[group.name + "_planned_bytes"] = group.planned_bytes;
    own[group.name + "_exposed_seconds"] = group.totals.exposed_seconds;
  }
  const std::vector<std::string> all = world.gather_text(own.dump());
  if (world.rank() != 0) return {};

  nlohmann::json ranks = nlohmann::json::array();
  nlohmann::json groups = nlohmann::json::object();
  for (const std::string& text : all) {
    nlohmann::json entry = nlohmann::json::parse(text);
    // A rank is in some of the groups: stages of a pipeline differ.
    for (const std::string name : entry["groups"]) {
      nlohmann::json& sum = groups.emplace(name, nlohmann::json::object()).first.value();
      const auto add = [&](const char* what, auto none) {
        sum[what] = sum.value(what, none) + entry[name + "_" + what].get<decltype(none)>();
      };
      add("bytes", int64_t{0});
      add("planned_bytes", int64_t{0});
      add("exposed_seconds", 0.0);
    }
    ranks.push_back(std::move(entry));
  }
  nlohmann::json summary = {{"run", run.run_folder},
                            {"loss", run.loss},
                            {"val_loss", run.val_loss},
                            {"grad_norm", run.grad_norm},
                            {"param_digest", run.param_digest},
                            {"identity", run.identity},
                            {"steps", run.steps},
                            {"tokens", run.tokens},
                            {"epochs", run.epochs},
                            {"tokens_per_second", run.tokens_per_second},
                            {"mfu", run.mfu},
                            {"loss_scale", run.loss_scale},
                            {"skipped_steps", run.skipped_steps},
                            {"rewinds", run.rewinds},
                            {"ranks", ranks},
                            {"groups", groups}};
  if (run.stopped) summary["stopped"] = true;
  if (run.resumed) {
    summary["resumed"] = {{"from", run.resumed->folder},
                          {"step", run.resumed->step},
                          {"seconds", run.resumed->seconds}};
  }
  if (run.checkpoints.saves > 0) {
    summary["checkpoints"] = {{"saves", run.checkpoints.saves},
                              {"pause_seconds", run.checkpoints.pause_seconds}};
  }
  if (!std::isnan(run.val_accuracy)) summary["val_accuracy"] = run.val_accuracy;
  if (run.average) {
    summary["val_loss_ema"] = run.average->val_loss;
    summary["ema_digest"] = run.average->digest;
  }
  if (run.noise) {
    summary["noise_scale"] = {{"samples", run.noise->samples}, {"tokens", run.noise->tokens}};
  }
  if (!run.pipeline.empty()) {
    const auto& formula = run.bubble.formula;
    summary["pipeline"] = {{"schedule", run.pipeline},
                           {"bubble", run.bubble.measured},
                           {"planned_bubble", run.bubble.planned},
                           {"bubble_formula", formula ? nlohmann::json(*formula) : nullptr}};
  }
  return summary.dump();
}

}  // namespace lockstep
