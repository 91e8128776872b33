#include "lockstep/cli/run_plan.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/files/byte_tokenizer.h"
#include "lockstep/input/sampler.h"
#include "lockstep/plan/batch_plan.h"

namespace lockstep::cli {
namespace {

/// The cut of a step and who computes what: the values that the runtime carries out.
struct StepPlan {
  plan::BatchPlan batch;
  plan::LeafSchedule schedule;

  StepPlan(const plan::TrainConfig& config, int ranks)
      : batch(plan::plan_batch(config.data.global_batch, config.data.micro_batch,
                               static_cast<int>(config.numerics.grains))),
        schedule(plan::plan_leaves(batch.grains, ranks, plan::LeafAssignment::contiguous)) {}

  /// The sequences of `rank`'s leaves: one run, since its leaves are.
  plan::SampleRange samples_of(int rank) const {
    const std::vector<int> leaves = schedule.leaves_of(rank);
    if (leaves.empty()) return {};
    return {batch.samples(leaves.front(), 0).lo,
            batch.samples(leaves.back(), batch.micro_batches_per_grain - 1).hi};
  }
};

int64_t tokens_of(const plan::TrainConfig& config) {
  return config.run.steps * config.data.global_batch * config.model.context;
}

/// Epochs with two decimals, cut off.
std::string epochs_text(const plan::TrainConfig& config, const RunData& data) {
  const int64_t windows = (data.train->size() - 1) / config.model.context;
  const int64_t samples = config.run.steps * config.data.global_batch;
  const int64_t hundredths = samples / windows * 100 + samples % windows * 100 / windows;
  const std::string digits = std::to_string(100 + hundredths % 100).substr(1);
  return base::str(hundredths / 100, ".", digits);
}

std::string count_text(int64_t count, std::string_view word) {
  return base::str(base::with_commas(count), " ", word, count == 1 ? "" : "s");
}

}  // namespace

RunData open_data(const plan::TrainConfig& config) {
  const RunData data{input::TokenFile::open(config.data.train),
                     input::TokenFile::open(config.data.valid)};
  const int64_t vocab =
      config.model.vocab > 0 ? config.model.vocab : files::ByteTokenizer::kVocabSize;
  for (const auto& file : {data.train, data.valid}) {
    input::require_window(*file, config.model.context);
    file->check_ids(vocab);
  }
  return data;
}

std::string run_plan_text(const plan::TrainConfig& config, int ranks, const RunData& data) {
  const StepPlan step(config, ranks);
  std::string text =
      base::str("step      ", count_text(step.batch.global_batch, "sequence"), " of ",
                count_text(config.model.context, "token"), ", in micro-batches of ",
                step.batch.micro_batch, "\n", "leaves    ", step.batch.grains, ", of ",
                count_text(step.batch.micro_batches_per_grain, "micro-batch"), " each\n");
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<std::string> leaves;
    for (const int leaf : step.schedule.leaves_of(rank)) leaves.push_back(std::to_string(leaf));
    const plan::SampleRange samples = step.samples_of(rank);
    std::string name = base::str("rank ", rank);
    name.resize(std::max<size_t>(10, name.size() + 1), ' ');
    text += base::str(name, leaves.size() == 1 ? "leaf " : "leaves ", base::joined(leaves),
                      ": sequences ", samples.lo, " to ", samples.hi - 1, " of each step\n");
  }
  return text + base::str("run       ", count_text(config.run.steps, "step"), ", ",
                          count_text(tokens_of(config), "token"), ", ", epochs_text(config, data),
                          " epochs\n", "training  ", data.train->path(), ", ",
                          count_text(data.train->size(), "token"), "\n", "checking  ",
                          data.valid->path(), ", ", count_text(data.valid->size(), "token"), "\n",
                          "engine    ", config.comm.engine, "\n");
}

nlohmann::json run_plan_json(const plan::TrainConfig& config, int ranks, const RunData& data) {
  const StepPlan step(config, ranks);
  nlohmann::json per_rank = nlohmann::json::array();
  for (int rank = 0; rank < ranks; ++rank) {
    const plan::SampleRange samples = step.samples_of(rank);
    per_rank.push_back({{"rank", rank},
                        {"leaves", step.schedule.leaves_of(rank)},
                        {"samples", {samples.lo, samples.hi}}});
  }
  return {{"global_batch", step.batch.global_batch},
          {"micro_batch", step.batch.micro_batch},
          {"grains", step.batch.grains},
          {"micro_batches_per_grain", step.batch.micro_batches_per_grain},
          {"steps", config.run.steps},
          {"tokens", tokens_of(config)},
          {"train_tokens", data.train->size()},
          {"valid_tokens", data.valid->size()},
          {"ranks", per_rank},
          {"config", plan::to_json(config)}};
}

}  // namespace lockstep::cli
