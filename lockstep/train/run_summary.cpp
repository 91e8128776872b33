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

}  // namespace

std::string run_summary(ProcessGroup& world, const RunTotals& run, const RankTotals& mine) {
  const nlohmann::json own = {{"rank", world.rank()},
                              {"samples", mine.samples},
                              {"gemm_flops", mine.gemm_flops},
                              {"peak_bytes", by_kind(mine.peak_bytes)},
                              {"dp_bytes", mine.dp.bytes},
                              {"dp_planned_bytes", mine.dp_planned_bytes},
                              {"dp_exposed_seconds", mine.dp.exposed_seconds}};
  const std::vector<std::string> all = world.gather_text(own.dump());
  if (world.rank() != 0) return {};

  nlohmann::json ranks = nlohmann::json::array();
  int64_t bytes = 0;
  int64_t planned = 0;
  double exposed = 0;
  for (const std::string& text : all) {
    nlohmann::json entry = nlohmann::json::parse(text);
    bytes += entry["dp_bytes"].get<int64_t>();
    planned += entry["dp_planned_bytes"].get<int64_t>();
    exposed += entry["dp_exposed_seconds"].get<double>();
    ranks.push_back(std::move(entry));
  }
  const nlohmann::json summary = {
      {"run", run.run_folder},
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
      {"ranks", ranks},
      {"groups",
       {{"dp", {{"bytes", bytes}, {"planned_bytes", planned}, {"exposed_seconds", exposed}}}}}};
  return summary.dump();
}

}  // namespace lockstep
