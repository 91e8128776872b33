// What the settings must be to each other, whatever their own ranges: train_config.cpp has those.

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/plan/batch_plan.h"
#include "lockstep/plan/detail/kernel_rules.h"
#include "lockstep/plan/detail/resnet_rules.h"
#include "lockstep/plan/detail/setting_rules.h"
#include "lockstep/plan/detail/step_rules.h"
#include "lockstep/plan/offload.h"
#include "lockstep/plan/optimizers.h"
#include "lockstep/plan/pipeline_check.h"
#include "lockstep/plan/run_layout.h"
#include "lockstep/plan/shard_layout.h"
#include "lockstep/plan/tokenizers.h"
#include "lockstep/plan/train_config.h"

namespace lockstep::plan {
namespace {

std::vector<int64_t> divisors(int64_t number) {
  std::vector<int64_t> found;
  for (int64_t d = 1; d * d <= number; ++d) {
    if (number % d != 0) continue;
    found.push_back(d);
    if (d * d != number) found.push_back(number / d);
  }
  std::sort(found.begin(), found.end());
  return found;
}

int64_t nearest_number(int64_t to, const std::vector<int64_t>& candidates) {
  return *std::min_element(candidates.begin(), candidates.end(), [to](int64_t a, int64_t b) {
    return std::abs(a - to) < std::abs(b - to);
  });
}

/// The leaves of a cut that `ranks` can share; 0 where there is none.
int grains_that_fit(int64_t global_batch, int64_t micro_batch, int grains, int ranks) {
  try {
    const int cut = plan_batch(global_batch, micro_batch, grains).grains;
    return cut >= ranks ? cut : 0;
  } catch (const UsageError&) {
    return 0;
  }
}

/// The `--set` that makes the batch fit `ranks`, nearest first: other grains of the same
/// micro-batches, then smaller micro-batches. Empty where only fewer ranks would do.
std::string settings_that_fit(const TrainConfig& config, int ranks) {
  const int64_t global = config.data.global_batch;
  std::vector<int64_t> micros = divisors(global);
  std::erase_if(micros, [&](int64_t micro) { return micro > config.data.micro_batch; });
  for (auto micro = micros.rbegin(); micro != micros.rend(); ++micro) {
    const std::string cut =
        *micro == config.data.micro_batch ? "" : base::str(" --set data.micro_batch=", *micro);
    const auto configured = static_cast<int>(config.numerics.grains);
    if (grains_that_fit(global, *micro, configured, ranks) > 0) return cut;
    if (grains_that_fit(global, *micro, 0, ranks) > 0) return cut + " --set numerics.grains=auto";
    for (const int64_t grains : divisors(global / *micro)) {
      if (grains >= ranks) return base::str(cut, " --set numerics.grains=", grains);
    }
  }
  return "";
}

void check_batch(const TrainConfig& config, int ranks) {
  try {
    const BatchPlan batch = plan_batch(config.data.global_batch, config.data.micro_batch,
                                       static_cast<int>(config.numerics.grains));
    plan_leaves(batch.grains, ranks, LeafAssignment::contiguous);
  } catch (const UsageError& error) {
    const std::string fits = settings_that_fit(config, ranks);
    throw UsageError(error.what() + (fits.empty() ? fits : "\n  This fits:" + fits));
  }
}

/// Grains have equal shapes: each number divides what it cuts.
void check_grains(const TrainConfig& config, int64_t grains) {
  if (grains < config.parallel.tensor) {
    throw UsageError(base::str("parallel.tensor = ", config.parallel.tensor,
                               " ranks share numerics.tensor_grains = ", grains,
                               " grains, one each at least.\n  This fits: --set "
                               "numerics.tensor_grains=auto"));
  }
  const auto& model = config.model;
  const std::pair<const char*, int64_t> sizes[] = {
      {"model.heads", model.heads},
      {"model.kv_heads", model.kv_heads > 0 ? model.kv_heads : model.heads},
      {"the inner width (model.ffn)", feed_forward_width(config)},
      {"model.context", model.context}};
  for (const auto& [name, size] : sizes) {
    if (size % grains == 0) continue;
    std::vector<int64_t> enough = divisors(size);
    std::erase_if(enough, [&](int64_t d) {
      return d < config.parallel.tensor ||
             std::any_of(std::begin(sizes), std::end(sizes),
                         [d](const auto& other) { return other.second % d != 0; });
    });
    const bool by_default = config.numerics.tensor_grains == 0;
    throw UsageError(base::str(
        "numerics.tensor_grains = ", grains, by_default ? " (those of parallel.tensor)" : "",
        " does not divide ", name, " = ", size, ".\n  ",
        enough.empty() ? base::str("No number of grains for ", config.parallel.tensor,
                                   " ranks does: change one of them")
                       : base::str("The nearest that does: --set numerics.tensor_grains=",
                                   nearest_number(grains, enough))));
  }
}

/// Both halves of a context grain have whole tensor grains' slices.
void check_context(const TrainConfig& config) {
  const int64_t grains = context_grains_of(config);
  const int64_t ranks = config.parallel.context;
  if (grains < ranks) {
    throw UsageError(base::str("parallel.context = ", ranks,
                               " ranks share numerics.context_grains = ", grains,
                               " grains, one each at least.\n  This fits: --set "
                               "numerics.context_grains=auto"));
  }
  if (grains == 1) return;
  if (config.memory.recompute == "selective") {
    throw UsageError(
        "memory.recompute = \"selective\" computes attention again, which ring attention does by "
        "itself: nothing is left to save.\n  These fit: --set memory.recompute=none, or --set "
        "memory.recompute=block");
  }
  const int64_t tokens = config.model.context;
  const int64_t unit = std::lcm(2 * grains, grains * tensor_grains_of(config));
  if (tokens % unit == 0) return;
  throw UsageError(base::str(
      "numerics.context_grains = ", grains,
      config.numerics.context_grains == 0 ? " (those of parallel.context)" : "",
      ": model.context = ", tokens, " does not divide into them, each of two equal halves",
      tensor_grains_of(config) > 1 ? " and a slice for each tensor grain" : "",
      ".\n  This fits: --set model.context=",
      std::max<int64_t>(1, (tokens + unit / 2) / unit) * unit));
}

/// What a stage does, for each of its data-parallel ranks.
void check_pipeline_of(const TrainConfig& config, int ranks) {
  const auto& parallel = config.parallel;
  const int data = data_ranks(config, ranks);
  if (parallel.reshard_after_forward != "auto") {
    throw UsageError(base::str(
        "parallel.reshard_after_forward = \"", parallel.reshard_after_forward,
        "\" has no effect in a pipeline: its units stay for the step.\n  This fits: --set "
        "parallel.reshard_after_forward=auto"));
  }
  const PipelineSchedule shape = schedule_of(config, 0);
  chunks_of(config, 0);
  const LeafSchedule leaves = leaves_of(config, data);
  const auto replicas = data / static_cast<int>(parallel.context);
  if (shape.chunks > 1 && leaves.grains % replicas != 0) {
    throw UsageError(base::str("a stage with ", shape.chunks,
                               " chunks wants as many leaves on "
                               "each data-parallel rank, but ",
                               leaves.grains, " leaves do not divide by ", replicas,
                               " ranks.\n  These fit: --set numerics.grains=", replicas,
                               ", or --set parallel.schedule=1f1b --set parallel.chunks=1"));
  }
  if (config.schedule_csv.empty()) return;
  for (int rank = 0; rank < data; ++rank) {
    const auto micros =
        static_cast<int>(leaves.leaves_of(rank).size()) * batch_of(config).micro_batches_per_grain;
    if (shape.stages != parallel.pipeline || shape.micro_batches != micros) {
      throw UsageError(base::str("the schedule ", parallel.schedule, " has ", shape.stages,
                                 " stages and ", shape.micro_batches, " micro-batches, the run ",
                                 parallel.pipeline, " and ", micros,
                                 " on each data-parallel rank.\n  Change the table, or "
                                 "parallel.pipeline and the batch."));
    }
  }
  check_pipeline(shape, kMessagesUnderWay);
}

/// The rules of a model that is cut into stages and divided into grains.
void check_parts(const TrainConfig& config, int ranks) {
  const auto& parallel = config.parallel;
  const auto grains = static_cast<int64_t>(tensor_grains_of(config));
  if (parallel.schedule == "zero-bubble-v" && parallel.chunks > 2) {
    throw UsageError(
        base::str("parallel.chunks = ", parallel.chunks,
                  ", but parallel.schedule = \"zero-bubble-v\" has two: one on the way "
                  "there, one on the way back.\n  This fits: --set parallel.chunks=2"));
  }
  const bool divided =
      grains > 1 || parallel.tensor > 1 || context_grains_of(config) > 1 || parallel.context > 1;
  if (divided) {
    check_grains(config, grains);
    check_context(config);
  }
  // Behind what the sizes allow: the number that it offers is one that they take.
  const int64_t parts = parallel.pipeline * parallel.context * parallel.tensor;
  if (ranks % parts != 0) {
    const int64_t fits = std::max<int64_t>(1, (ranks + parts / 2) / parts) * parts;
    throw UsageError(base::str("parallel.pipeline = ", parallel.pipeline,
                               " stages of parallel.context = ", parallel.context,
                               " times parallel.tensor = ", parallel.tensor,
                               " ranks do not divide -n ", ranks, ".\n  This fits: -n ", fits));
  }
  if (!divided && parallel.stages.empty() && !is_pipelined(config)) return;
  if (!is_pipelined(config)) {
    chunks_of(config, 0);
    return;
  }
  check_pipeline_of(config, ranks);
}

std::string ranks_text(int ranks) { return base::str(ranks, ranks == 1 ? " rank" : " ranks"); }

/// What has an effect only with a certain sharding is refused without it.
void check_sharding(const TrainConfig& config, int ranks) {
  const auto& parallel = config.parallel;
  const TrainConfig usual;
  if (parallel.replicas > 1 && parallel.shard == "none") {
    throw UsageError(base::str("parallel.replicas = ", parallel.replicas,
                               " with parallel.shard = \"none\": without shards every rank is a "
                               "replica.\n  This fits: --set parallel.replicas=1"));
  }
  if (ranks % parallel.replicas != 0) {
    std::vector<int64_t> fits = divisors(ranks);
    throw UsageError(base::str(
        "parallel.replicas = ", parallel.replicas, " do not divide ", ranks_text(ranks),
        ".\n  This fits: --set parallel.replicas=", nearest_number(parallel.replicas, fits)));
  }
  if (parallel.shard == "zero3") return;
  if (parallel.prefetch != usual.parallel.prefetch) {
    throw UsageError(base::str("parallel.prefetch = ", parallel.prefetch,
                               " has no effect with parallel.shard = \"", parallel.shard,
                               "\": nothing is gathered.\n  These fit: --set "
                               "parallel.shard=zero3, or --set parallel.prefetch=",
                               usual.parallel.prefetch));
  }
  if (parallel.reshard_after_forward != usual.parallel.reshard_after_forward) {
    throw UsageError(
        base::str("parallel.reshard_after_forward = \"", parallel.reshard_after_forward,
                  "\" has no effect with parallel.shard = \"", parallel.shard,
                  "\": nothing is gathered.\n  These fit: --set "
                  "parallel.shard=zero3, or --set parallel.reshard_after_forward=auto"));
  }
}

}  // namespace

int64_t resolved_vocab(const TrainConfig& config) {
  return config.model.vocab > 0 ? config.model.vocab : tokenizer_vocab_size(config.data.tokenizer);
}

int64_t feed_forward_width(const TrainConfig& config) {
  const auto& m = config.model;
  if (m.ffn > 0) return m.ffn;
  // Three matrices in the place of two: as many parameters.
  return m.family == "llama" ? (8 * m.width / 3 + 31) / 32 * 32 : 4 * m.width;
}

int64_t parameter_count(const TrainConfig& config) {
  const auto& m = config.model;
  if (m.family == "resnet") return resnet_parameter_count(config);
  constexpr int64_t kWindow = 8;  // tokens the mlp family looks back
  const int64_t vocab = resolved_vocab(config);
  const int64_t inner = feed_forward_width(config);
  const int64_t bias = m.bias ? 1 : 0;
  if (m.family == "llama") {
    const int64_t kv = m.kv_heads > 0 ? m.kv_heads : m.heads;
    const int64_t attention = 2 * m.width * m.width + 2 * m.width * (m.width / m.heads * kv);
    return (m.tied ? 1 : 2) * vocab * m.width +
           m.layers * (attention + 3 * m.width * inner + 2 * m.width) + m.width;
  }
  if (m.family == "mlp") {
    const int64_t first = inner * (kWindow * m.width + bias);
    const int64_t further = (m.layers - 1) * inner * (inner + bias);
    return vocab * m.width + first + further + vocab * inner;
  }
  const int64_t norm = m.width * (1 + bias);
  const int64_t attention = 4 * m.width * (m.width + bias);
  const int64_t feed_forward = inner * (m.width + bias) + m.width * (inner + bias);
  const int64_t embeddings = (vocab + m.context) * m.width + (m.tied ? 0 : vocab * m.width);
  return embeddings + m.layers * (2 * norm + attention + feed_forward) + norm;
}

int64_t state_bytes_per_rank(const TrainConfig& config, int ranks) {
  const int64_t ranks_of_a_model = config.parallel.pipeline * config.parallel.tensor;
  const int64_t whole = 4 * parameter_count(config) / ranks_of_a_model;
  const Shard stage = parse_shard(config.parallel.shard);
  const Offload offload = offload_of(config);
  const int64_t parts = std::max<int64_t>(1, data_ranks(config, ranks) / config.parallel.replicas);
  const auto held = [&](bool divided) { return divided ? whole / parts : whole; };
  return (offload.parameters ? 0 : held(stage == Shard::zero3)) + held(stage >= Shard::zero2) +
         (offload.optimizer ? 0
                            : traits_of(parse_optimizer(config.optim.name)).moments *
                                  held(stage >= Shard::zero1));
}

bool is_family(const std::string& name) {
  return std::find(kFamilies.begin(), kFamilies.end(), name) != kFamilies.end();
}

namespace {

struct Setting {
  const char* key;
  std::string value;
};

/// What an mlp does not have, and the settings without it.
struct Lack {
  bool asked = false;
  const char* what;
  std::vector<Setting> without;
};

std::vector<Lack> lacks_of_mlp(const TrainConfig& config) {
  const auto& parallel = config.parallel;
  const TrainConfig usual;
  std::vector<Setting> whole;
  const auto needs = [&](bool set, const char* key, const char* value) {
    if (set) whole.push_back({key, value});
  };
  const bool own_schedule = !config.schedule_csv.empty() || parallel.schedule == "zero-bubble-v";
  needs(parallel.pipeline != 1, "parallel.pipeline", "1");
  needs(parallel.chunks != 1, "parallel.chunks", "1");
  needs(own_schedule, "parallel.schedule", "1f1b");
  needs(!parallel.stages.empty(), "parallel.stages", "");
  needs(parallel.tensor != 1, "parallel.tensor", "1");
  needs(parallel.context != 1, "parallel.context", "1");
  needs(config.numerics.tensor_grains > 1, "numerics.tensor_grains", "auto");
  needs(config.numerics.context_grains > 1, "numerics.context_grains", "auto");
  return {
      {config.model.tied,
       "has a head of its own: its embedding has another shape",
       {{"model.tied", "false"}}},
      {config.memory.recompute == "selective",
       "has no attention, which memory.recompute = \"selective\" computes again; \"block\" does "
       "so for each hidden layer",
       {{"memory.recompute", "block"}}},
      {config.precision.compute != "fp32", "computes in fp32", {{"precision.compute", "fp32"}}},
      {config.model.kv_heads != 0 || config.model.rope_theta != usual.model.rope_theta,
       "has neither model.kv_heads nor model.rope_theta, which are of the family llama",
       {{"model.kv_heads", "0"}, {"model.rope_theta", get_key(usual, "model.rope_theta")}}},
      {!whole.empty(), "is neither cut into stages nor divided", whole}};
}

/// All that is in the way is told at once: after one refusal comes no other.
void check_mlp(const TrainConfig& config, int ranks) {
  std::vector<std::string> missing;
  std::string fits;
  TrainConfig other = config;
  other.schedule_csv.clear();
  for (const Lack& lack : lacks_of_mlp(config)) {
    if (!lack.asked) continue;
    missing.emplace_back(lack.what);
    for (const Setting& setting : lack.without) {
      fits += base::str(" --set ", setting.key, "=", setting.value);
      set_key(other, setting.key, setting.value);
    }
  }
  if (missing.empty()) return;
  // Ranks that shared a model are data-parallel ones now.
  if (config.parallel.data != -1 && config.parallel.data != ranks) {
    fits += " --set parallel.data=auto";
  }
  throw UsageError(base::str("model.family = \"mlp\" ", base::joined(missing),
                             ".\n  This fits:", fits, settings_that_fit(other, ranks)));
}

/// What only one family has.
void check_family(const TrainConfig& config) {
  const auto& model = config.model;
  const TrainConfig usual;
  if (model.family != "llama") {
    if (model.kv_heads == 0 && model.rope_theta == usual.model.rope_theta) return;
    throw UsageError(
        base::str("model.kv_heads and model.rope_theta are of the family llama; "
                  "model.family = \"",
                  model.family,
                  "\" has neither.\n  This fits: --set model.kv_heads=0 --set "
                  "model.rope_theta=",
                  usual.model.rope_theta));
  }
  if (model.bias) {
    throw UsageError(
        "model.family = \"llama\" has no biases.\n  This fits: --set model.bias=false");
  }
  if (model.kv_heads > 0 && model.heads % model.kv_heads != 0) {
    throw UsageError(base::str("model.kv_heads = ", model.kv_heads,
                               " does not divide model.heads = ", model.heads,
                               ".\n  The nearest that does: --set model.kv_heads=",
                               nearest_number(model.kv_heads, divisors(model.heads))));
  }
}

}  // namespace

void check(const TrainConfig& config, int ranks) {
  if (ranks < 1) throw UsageError(base::str("-n ", ranks, ": a job has at least 1 rank"));
  if (!is_family(config.model.family) && config.run.worker.empty()) {
    const std::vector<std::string> names(kFamilies.begin(), kFamilies.end());
    const std::string near = base::nearest(config.model.family, names);
    throw UsageError(base::str("model.family = \"", config.model.family, "\": the families are ",
                               base::joined(names), ".",
                               near.empty() ? "" : "\n  Did you mean \"" + near + "\"?",
                               "\n  A program with one of your own is named by run.worker."));
  }
  const bool has_heads = config.model.family == "gpt2" || config.model.family == "llama";
  if (has_heads && config.model.width % config.model.heads != 0) {
    const int64_t heads = nearest_number(config.model.heads, divisors(config.model.width));
    const int64_t share = std::max<int64_t>(1, config.model.width / config.model.heads);
    throw UsageError(base::str("model.heads = ", config.model.heads,
                               " does not divide model.width = ", config.model.width,
                               ".\n  These fit: --set model.heads=", heads,
                               " or --set model.width=", share * config.model.heads));
  }
  if (config.model.family == "mlp") check_mlp(config, ranks);
  if (config.model.family == "resnet") {
    check_resnet(config);
  } else if (is_family(config.model.family)) {
    check_no_resnet(config);
  }
  if (has_heads) check_kernels(config);
  check_family(config);
  const auto parts =
      static_cast<int>(config.parallel.pipeline * config.parallel.context * config.parallel.tensor);
  const int64_t wanted = config.parallel.data * parts;
  if (config.parallel.data != -1 && wanted != ranks) {
    throw UsageError(base::str("parallel.data = ", config.parallel.data,
                               parts > 1 ? base::str(" times ", parts, " ranks a replica") : "",
                               ", but the job has ", ranks_text(ranks), ".\n  This fits: -n ",
                               wanted, ", or --set parallel.data=auto"));
  }
  if (ranks % parts == 0) {
    check_batch(config, ranks / parts);
    check_sharding(config, ranks / parts);
    if (config.model.family == "resnet") check_resnet_ranks(config, ranks);
  }
  check_parts(config, ranks);
  offload_of(config);
  check_optimizer(config);
  check_steps(config);
  check_texts(config);
  check_log(config);
}

}  // namespace lockstep::plan
