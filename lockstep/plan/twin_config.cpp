#include "lockstep/plan/twin_config.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/plan/batch_plan.h"
#include "lockstep/plan/model_cut.h"
#include "lockstep/plan/run_layout.h"

namespace lockstep::plan {
namespace {

// Small, and no multiples of the vector lanes that kernels work in.
constexpr int64_t kHeadWidth = 6;  // even: rotary positions turn pairs
constexpr int64_t kFeedForwardOfGrain = 10;
constexpr int64_t kTokensOfGrain = 5;
constexpr int64_t kTokens = 7;  // of one grain alone
constexpr int64_t kVocab = 61;  // a prime: grains have rows that are padding
constexpr int64_t kMicroBatch = 2;
constexpr int64_t kFewGrains = 4;  // that have 2 heads each
constexpr int64_t kFewPieces = 4;  // that have 2 layers each

/// Layers of each piece.
std::vector<int64_t> sizes_of(const TrainConfig& config) {
  const PipelineSchedule shape = schedule_of(config, 0);
  std::vector<int64_t> sizes;
  for (const ModelChunk& piece : cut_layers(config.model.layers, shape.stages * shape.chunks,
                                            parse_stage_sizes(config.parallel.stages))) {
    sizes.push_back(piece.last_layer - piece.first_layer);
  }
  const auto [least, most] = std::minmax_element(sizes.begin(), sizes.end());
  const int64_t low = *least;
  const bool even = low == *most;
  for (int64_t& size : sizes) {
    const bool two = even ? low > 1 && std::ssize(sizes) <= kFewPieces : size > low;
    size = two ? 2 : 1;
  }
  return sizes;
}

void shrink_layers(TrainConfig& twin) {
  const std::vector<int64_t> sizes = sizes_of(twin);
  twin.model.layers = 0;
  std::string text;
  for (const int64_t size : sizes) {
    twin.model.layers += size;
    text += base::str(text.empty() ? "" : ",", size);
  }
  // Where nobody gave sizes, the even cut of so many layers has these.
  if (!twin.parallel.stages.empty()) twin.parallel.stages = text;
}

void shrink_model(TrainConfig& twin) {
  auto& model = twin.model;
  const int64_t grains = twin.numerics.tensor_grains;
  const int64_t width = model.width;
  const int64_t heads = grains > kFewGrains ? grains : 2 * grains;
  const int64_t head_width = std::min(kHeadWidth, std::max<int64_t>(1, width / model.heads));
  model.vocab = std::min(kVocab, resolved_vocab(twin));
  model.ffn = std::min(kFeedForwardOfGrain * grains, feed_forward_width(twin));
  // Two halves of each context grain, of which tensor grains have slices.
  const int64_t contexts = twin.numerics.context_grains > 1 ? 2 * twin.numerics.context_grains : 1;
  const int64_t tokens = grains > 1 ? kTokensOfGrain * grains : kTokens;
  model.context = std::min((tokens + contexts - 1) / contexts * contexts, model.context);
  if (model.kv_heads > 0) {
    const int64_t group = std::min<int64_t>(2, model.heads / model.kv_heads);
    model.kv_heads = std::min(heads, model.kv_heads);
    model.heads = model.kv_heads * group;
  } else {
    model.heads = std::min(heads, model.heads);
  }
  model.width = model.family == "mlp" ? std::min(kHeadWidth, width) : model.heads * head_width;
  // Products have the run's magnitudes: narrow layers of small weights would hardly do anything.
  model.init_std *= std::sqrt(static_cast<double>(width) / static_cast<double>(model.width));
  model.init_std = std::min(model.init_std, 1.0);
  shrink_layers(twin);
}

void shrink_batch(TrainConfig& twin, const BatchPlan& batch) {
  // A schedule of one's own is for a number of micro-batches.
  const int most = twin.schedule_csv.empty() ? 2 : batch.micro_batches_per_grain;
  twin.numerics.grains = batch.grains;
  twin.data.micro_batch = kMicroBatch;
  twin.data.global_batch =
      kMicroBatch * batch.grains * std::min(most, batch.micro_batches_per_grain);
}

/// Three steps have to show what goes wrong: they are long, and what is only now and then in the
/// run acts in each.
void sharpen_optimizer(TrainConfig& twin) {
  auto& optim = twin.optim;
  optim.lr = 1e-2;
  optim.lr_scaling = "none";
  optim.base_batch = 0;
  optim.warmup_steps = 0;
  if (optim.weight_decay > 0) optim.weight_decay = std::max(optim.weight_decay, 0.1);
  if (optim.grad_clip > 0) optim.grad_clip = std::min(optim.grad_clip, 0.05);
}

}  // namespace

TrainConfig twin_of(const TrainConfig& config, int ranks) {
  if (!is_family(config.model.family)) {
    throw UsageError(base::str("model.family = \"", config.model.family,
                               "\" is one of your own: only its program knows how to make it "
                               "small.\n  This fits: --set model.family=gpt2 --set run.worker=, "
                               "which verifies the layout with a model of Lockstep's."));
  }
  if (config.model.family == "resnet") {
    throw UsageError(
        "model.family = \"resnet\" has no twin: twins learn text.\n  This fits: --set "
        "model.family=gpt2, with the defaults of its model and data, which verifies the layout.");
  }
  const TrainConfig usual;
  TrainConfig twin = config;
  twin.run = usual.run;
  twin.run.name = "twin";
  twin.run.seed = config.run.seed;
  twin.run.steps = 3;
  twin.run.check_every = 0;  // the comparison says more than the ranks' own
  twin.data = usual.data;
  twin.data.shuffle = config.data.shuffle;
  twin.data.eval_batches = 1;
  twin.numerics.tensor_grains = tensor_grains_of(config);
  twin.numerics.context_grains = context_grains_of(config);
  shrink_model(twin);
  shrink_batch(twin, batch_of(config));
  sharpen_optimizer(twin);
  // Several buckets, of several parameters.
  twin.comm.first_bucket_mb = 0.001;
  twin.comm.bucket_mb = 0.004;
  twin.comm.timeout_s = std::min(config.comm.timeout_s, 60.0);
  twin.memory.offload_dir = "";
  twin.memory.limit_mb = 0;
  twin.log = usual.log;
  twin.log.every = 1;
  twin.log.eval_every = 0;
  twin.log.tensorboard = false;
  check(twin, ranks);
  return twin;
}

TrainConfig alone_of(const TrainConfig& twin) {
  const TrainConfig usual;
  TrainConfig alone = twin;
  alone.numerics.grains = batch_of(twin).grains;
  alone.numerics.tensor_grains = tensor_grains_of(twin);
  alone.numerics.context_grains = context_grains_of(twin);
  alone.parallel = usual.parallel;
  alone.comm = usual.comm;
  alone.comm.timeout_s = twin.comm.timeout_s;
  alone.memory = usual.memory;
  alone.algorithms = {};
  alone.schedule_csv = "";
  return alone;
}

}  // namespace lockstep::plan
