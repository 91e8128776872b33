#include "lockstep/cli/run_plan.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/files/token_data.h"
#include "lockstep/plan/batch_ramp.h"
#include "lockstep/plan/optimizers.h"
#include "lockstep/plan/run_layout.h"

namespace lockstep::cli {
namespace {

/// The cut of a step and who computes what: the values that the runtime carries out.
struct StepPlan {
  plan::BatchPlan batch;
  plan::LeafSchedule schedule;
  std::vector<plan::RankPlace> places;  // of all ranks

  StepPlan(const plan::TrainConfig& config, int ranks)
      : batch(plan::batch_of(config)),
        schedule(plan::leaves_of(config, plan::data_ranks(config, ranks))) {
    for (int rank = 0; rank < ranks; ++rank) {
      places.push_back(plan::place_in(config, ranks, rank));
    }
  }

  std::vector<int> leaves_of(int rank) const {
    return schedule.leaves_of(places[static_cast<size_t>(rank)].data);
  }

  /// " | stage 1, grains 2 to 3"; empty where every rank has the whole model.
  std::string part_text(const plan::TrainConfig& config, int rank) const {
    const plan::RankPlace& place = places[static_cast<size_t>(rank)];
    std::string text;
    if (config.parallel.pipeline > 1) text += base::str(" | stage ", place.stage);
    if (config.parallel.context > 1) {
      const plan::LeafRange grains = plan::context_place_of(config, place.context).local;
      text +=
          base::str(" | context grains ", grains.lo, " to ", grains.hi - 1, " of each sequence");
    }
    if (config.parallel.tensor > 1) {
      const plan::LeafRange grains = plan::tensor_place_of(config, place.tensor).local;
      text += base::str(" | grains ", grains.lo, " to ", grains.hi - 1, " of each layer");
    }
    return text;
  }

  /// The sequences of each of `rank`'s leaves; leaves that follow each other make one run.
  std::vector<plan::SampleRange> samples_of(int rank) const {
    std::vector<plan::SampleRange> runs;
    for (const int leaf : leaves_of(rank)) {
      const plan::SampleRange samples{batch.samples(leaf, 0).lo,
                                      batch.samples(leaf, batch.micro_batches_per_grain - 1).hi};
      if (!runs.empty() && runs.back().hi == samples.lo) {
        runs.back().hi = samples.hi;
      } else {
        runs.push_back(samples);
      }
    }
    return runs;
  }
};

/// Sequences or pictures of the run, of a batch that grows too.
int64_t samples_of_run(const plan::TrainConfig& config) {
  return plan::ramp_of(config).samples_before(config.run.steps);
}

int64_t tokens_of(const plan::TrainConfig& config) {
  return samples_of_run(config) * config.model.context;
}

/// "ramp      8 from step 1, 16 from step 11, ..."; nothing without one.
std::string ramp_text(const plan::TrainConfig& config) {
  const plan::BatchRamp ramp = plan::ramp_of(config);
  if (ramp.stages.size() == 1) return "";
  std::vector<std::string> sizes;
  for (const plan::BatchRamp::Stage& stage : ramp.stages) {
    sizes.push_back(base::str(stage.batch.global_batch, " from step ", stage.first_step + 1));
  }
  return base::str("ramp      ", base::joined(sizes), "; what follows is of the last\n");
}

/// Epochs with two decimals, cut off.
std::string epochs_text(const plan::TrainConfig& config, const RunData& data) {
  const auto hundredths = static_cast<int64_t>(100 * data.train->epochs(samples_of_run(config)));
  const std::string digits = std::to_string(100 + hundredths % 100).substr(1);
  return base::str(hundredths / 100, ".", digits);
}

/// A model of one vocabulary learns nothing from ids of another, and no id need be out of range.
void require_tokenizer(const std::string& path, const std::string& tokenizer) {
  const auto meta = files::read_token_meta(path);
  const auto own_name = [](const std::string& name) { return name == "gpt2" ? "r50k" : name; };
  if (!meta || own_name(meta->tokenizer) == own_name(tokenizer)) return;
  throw UsageError(base::str(path, " holds tokens of ", meta->tokenizer, ", but data.tokenizer = ",
                             tokenizer, ".\n  This fits: --set data.tokenizer=", meta->tokenizer));
}

std::string count_text(int64_t count, std::string_view word) {
  return base::str(base::with_commas(count), " ", word, count == 1 ? "" : "s");
}

/// What a step is over.
std::string step_text(const plan::TrainConfig& config, const RunData& data) {
  const int64_t samples = config.data.global_batch;
  if (data.pictures) return count_text(samples, "picture");
  return base::str(count_text(samples, "sequence"), " of ",
                   count_text(config.model.context, "token"));
}

/// Of all ranks together: masters, moments, and the average where there is one, fp32. Each rank
/// writes an equal part (plan/fitting.h says it to the byte, where the model's table is known).
int64_t checkpoint_bytes(const plan::TrainConfig& config) {
  const int kinds = 1 + plan::traits_of(plan::parse_optimizer(config.optim.name)).moments +
                    (config.optim.ema > 0 ? 1 : 0);
  return 4 * kinds * plan::parameter_count(config);
}

/// "saving    every 100 steps: 10.1 MB, about 5.1 MB a rank from a copy in memory"
std::string saving_text(const plan::TrainConfig& config, int ranks) {
  const int64_t bytes = checkpoint_bytes(config);
  const std::string when = config.checkpoint.every > 0
                               ? base::str("every ", count_text(config.checkpoint.every, "step"))
                               : std::string("on request");
  return base::str("saving    ", when, ": ", base::with_commas(bytes), " bytes, about ",
                   base::with_commas(bytes / ranks), " a rank, ",
                   config.checkpoint.async ? "from a copy in its memory\n" : "without a copy\n");
}

}  // namespace

RunData open_data(const plan::TrainConfig& config) {
  if (config.model.family == "resnet") {
    return {.train = {},
            .valid = {},
            .pictures = files::PictureFile::open(config.data.train),
            .valid_pictures = files::PictureFile::open(config.data.valid)};
  }
  const RunData data{
      input::TrainingData::open(config.data.train, {.context = config.model.context,
                                                    .seed = static_cast<uint64_t>(config.run.seed),
                                                    .shuffle = config.data.shuffle}),
      input::TokenFile::open(config.data.valid)};
  input::require_window(*data.valid, config.model.context);
  for (const auto& source : data.train->sources()) {
    require_tokenizer(source.tokens->path(), config.data.tokenizer);
  }
  require_tokenizer(data.valid->path(), config.data.tokenizer);
  data.train->check_ids(plan::resolved_vocab(config));
  data.valid->check_ids(plan::resolved_vocab(config));
  return data;
}

std::string run_plan_text(const plan::TrainConfig& config, int ranks, const RunData& data) {
  const StepPlan step(config, ranks);
  std::string text = base::str(
      ramp_text(config), "step      ", step_text(config, data), ", in micro-batches of ",
      step.batch.micro_batch, "\n", "leaves    ", step.batch.grains, ", of ",
      step.batch.micro_batches_per_grain,
      step.batch.micro_batches_per_grain == 1 ? " micro-batch each\n" : " micro-batches each\n");
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<std::string> leaves;
    for (const int leaf : step.leaves_of(rank)) leaves.push_back(std::to_string(leaf));
    std::vector<std::string> samples;
    for (const plan::SampleRange& run : step.samples_of(rank)) {
      samples.push_back(base::str(run.lo, " to ", run.hi - 1));
    }
    std::string name = base::str("rank ", rank);
    name.resize(std::max<size_t>(10, name.size() + 1), ' ');
    text += base::str(name, leaves.size() == 1 ? "leaf " : "leaves ", base::joined(leaves),
                      data.pictures ? ": pictures " : ": sequences ", base::joined(samples),
                      " of each step", step.part_text(config, rank), "\n");
  }
  text += base::str("run       ", count_text(config.run.steps, "step"));
  if (data.train) {
    text += base::str(", ", count_text(tokens_of(config), "token"), ", ", epochs_text(config, data),
                      " epochs\n", "training  ", config.data.train, ", ",
                      count_text(data.train->tokens(), "token"), "\n", "checking  ",
                      data.valid->path(), ", ", count_text(data.valid->size(), "token"));
  }
  if (data.pictures) {
    text +=
        base::str(", ", count_text(samples_of_run(config), "picture"), "\n", "training  ",
                  data.pictures->path(), ", ", count_text(data.pictures->shape().count, "picture"),
                  "\n", "checking  ", data.valid_pictures->path(), ", ",
                  count_text(data.valid_pictures->shape().count, "picture"));
  }
  return text + base::str("\n", saving_text(config, ranks), "engine    ", config.comm.engine, "\n");
}

nlohmann::json run_plan_json(const plan::TrainConfig& config, int ranks, const RunData& data) {
  const StepPlan step(config, ranks);
  nlohmann::json per_rank = nlohmann::json::array();
  for (int rank = 0; rank < ranks; ++rank) {
    nlohmann::json samples = nlohmann::json::array();
    for (const plan::SampleRange& run : step.samples_of(rank)) samples.push_back({run.lo, run.hi});
    per_rank.push_back({{"rank", rank}, {"leaves", step.leaves_of(rank)}, {"samples", samples}});
  }
  nlohmann::json plan = {{"global_batch", step.batch.global_batch},
                         {"micro_batch", step.batch.micro_batch},
                         {"grains", step.batch.grains},
                         {"micro_batches_per_grain", step.batch.micro_batches_per_grain},
                         {"steps", config.run.steps},
                         {"checkpoint_bytes", checkpoint_bytes(config)},
                         {"ranks", per_rank},
                         {"config", plan::to_json(config)}};
  if (data.train) {
    plan["tokens"] = tokens_of(config);
    plan["train_tokens"] = data.train->tokens();
    plan["valid_tokens"] = data.valid->size();
  }
  if (data.pictures) {
    plan["train_pictures"] = data.pictures->shape().count;
    plan["valid_pictures"] = data.valid_pictures->shape().count;
  }
  return plan;
}

}  // namespace lockstep::cli
