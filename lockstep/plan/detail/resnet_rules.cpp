#include "lockstep/plan/detail/resnet_rules.h"

#include <algorithm>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/plan/batch_plan.h"

namespace lockstep::plan {
namespace {

constexpr int64_t kGroup = 8;  // channels of a norm over groups: parallel/norm/channel_norm.h

/// Settings that a residual network has no use for, each with why.
struct Lack {
  const char* key;
  const char* why;
};

constexpr Lack kLacks[] = {
    {"parallel.pipeline", "is not cut into stages"},
    {"parallel.chunks", "is not cut into stages"},
    {"parallel.stages", "is not cut into stages"},
    {"parallel.tensor", "has no layers that ranks divide"},
    {"parallel.context", "has no sequences to divide"},
    {"parallel.sequence", "has no sequences to divide"},
    {"numerics.tensor_grains", "has no layers that ranks divide"},
    {"numerics.context_grains", "has no sequences to divide"},
    {"model.heads", "has no attention"},
    {"model.kv_heads", "has no attention"},
    {"model.rope_theta", "has no positions"},
    {"model.ffn", "has no feed-forward part"},
    {"model.context", "has no sequences"},
    {"model.vocab", "has the classes of its data"},
    {"model.tied", "has no embedding to tie"},
    {"model.bias", "has biases in its norms and its head, always"},
    {"model.dropout", "has no dropout"},
    {"model.init_std", "starts by He's rule"},
    {"data.tokenizer", "reads pictures"},
    {"precision.compute", "computes in fp32"},
    {"numerics.kernels", "computes by LibTorch's operators, always"},
};

void check_lacks(const TrainConfig& config) {
  const TrainConfig usual;
  std::vector<std::string> why;
  std::string fits;
  for (const Lack& lack : kLacks) {
    const std::string value = get_key(usual, lack.key);
    if (get_key(config, lack.key) == value) continue;
    if (std::find(why.begin(), why.end(), lack.why) == why.end()) why.emplace_back(lack.why);
    fits += base::str(" --set ", lack.key, "=", value);
  }
  if (config.memory.recompute == "selective") {
    why.emplace_back("has no attention to compute again; \"block\" does so for each block");
    fits += " --set memory.recompute=block";
  }
  if (why.empty()) return;
  throw UsageError(
      base::str("model.family = \"resnet\" ", base::joined(why), ".\n  This fits:", fits));
}

}  // namespace

void check_resnet(const TrainConfig& config) {
  check_lacks(config);
  if (config.model.norm == "group" && config.model.width % kGroup != 0) {
    throw UsageError(base::str(
        "model.norm = \"group\" takes ", kGroup, " channels together, which do not divide ",
        "model.width = ", config.model.width, ".\n  The nearest that fits: --set model.width=",
        std::max<int64_t>(1, (config.model.width + kGroup / 2) / kGroup) * kGroup));
  }
}

void check_resnet_ranks(const TrainConfig& config, int ranks) {
  if (config.model.norm != "sync") return;
  const BatchPlan batch = plan_batch(config.data.global_batch, config.data.micro_batch,
                                     static_cast<int>(config.numerics.grains));
  if (batch.grains % ranks == 0) return;
  throw UsageError(base::str(
      "model.norm = \"sync\" takes statistics over the micro-batches that all ranks compute at the "
      "same time, but ",
      batch.grains, " leaves do not divide by ", ranks, " ranks.\n  These fit: --set model.norm=",
      "batch, or a number of ranks that divides numerics.grains = ", batch.grains));
}

void check_no_resnet(const TrainConfig& config) {
  const TrainConfig usual;
  if (config.model.norm == usual.model.norm && !config.data.augment) return;
  throw UsageError(base::str("model.norm and data.augment are of the family resnet; ",
                             "model.family = \"", config.model.family,
                             "\" has neither.\n  This fits: --set model.norm=", usual.model.norm,
                             " --set data.augment=false"));
}

int64_t resnet_parameter_count(const TrainConfig& config) {
  constexpr int64_t kWindow = 9;  // 3x3
  constexpr int kStages = 3;
  constexpr int64_t kClasses = 10;
  const auto layer = [](int64_t in, int64_t out) { return kWindow * in * out + 2 * out; };
  int64_t in = config.model.width;
  int64_t count = layer(1, in);
  for (int stage = 0; stage < kStages; ++stage) {
    const int64_t out = config.model.width << stage;
    count += layer(in, out) + layer(out, out) + (config.model.layers - 1) * 2 * layer(out, out);
    in = out;
  }
  return count + kClasses * (in + 1);
}

}  // namespace lockstep::plan
