// What the settings must be to each other, whatever their own ranges: train_config.cpp has those.

#include <algorithm>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/plan/batch_plan.h"
#include "lockstep/plan/offload.h"
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

void check_optimizer(const TrainConfig& config) {
  const auto& optim = config.optim;
  // The kernel works in fp32: an eps that vanishes there would divide zero by zero.
  if (!(static_cast<float>(optim.eps) > 0)) {
    throw UsageError(base::str("optim.eps = ", optim.eps,
                               " is 0 as a float.\n  This fits: --set optim.eps=1e-30"));
  }
  if (optim.lr_scaling != "none" && optim.base_batch == 0) {
    throw UsageError(base::str("optim.lr_scaling = \"", optim.lr_scaling,
                               "\" scales from optim.base_batch, which is 0.\n  This fits: --set "
                               "optim.base_batch=",
                               config.data.global_batch,
                               ", the batch that optim.lr was found for"));
  }
  if (optim.lr_scaling == "none" && optim.base_batch != 0) {
    throw UsageError(
        base::str("optim.base_batch = ", optim.base_batch,
                  " has no effect with optim.lr_scaling = \"none\".\n  These fit: --set "
                  "optim.lr_scaling=linear, --set optim.lr_scaling=sqrt, or --set "
                  "optim.base_batch=0"));
  }
}

void check_log(const TrainConfig& config) {
  const std::string& http = config.log.http;
  if (http.empty()) return;
  const size_t colon = http.rfind(':');
  const std::string port = colon == std::string::npos ? "" : http.substr(colon + 1);
  const bool digits = !port.empty() && port.size() <= 5 &&
                      port.find_first_not_of("0123456789") == std::string::npos;
  if (colon != std::string::npos && colon > 0 && digits && std::stoi(port) <= 65'535) return;
  throw UsageError(
      base::str("log.http = \"", http,
                "\" is not HOST:PORT.\n  This fits: --set log.http=127.0.0.1:9400 (port "
                "0: a free one)"));
}

}  // namespace

int64_t resolved_vocab(const TrainConfig& config) {
  return config.model.vocab > 0 ? config.model.vocab : tokenizer_vocab_size(config.data.tokenizer);
}

int64_t parameter_count(const TrainConfig& config) {
  const auto& m = config.model;
  constexpr int64_t kWindow = 8;  // tokens the mlp family looks back
  const int64_t vocab = resolved_vocab(config);
  const int64_t inner = m.ffn > 0 ? m.ffn : 4 * m.width;
  const int64_t bias = m.bias ? 1 : 0;
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
  const int64_t whole = 4 * parameter_count(config);
  const Shard stage = parse_shard(config.parallel.shard);
  const Offload offload = offload_of(config);
  const int64_t parts = ranks / config.parallel.replicas;
  const auto held = [&](bool divided) { return divided ? whole / parts : whole; };
  return (offload.parameters ? 0 : held(stage == Shard::zero3)) + held(stage >= Shard::zero2) +
         (offload.optimizer ? 0 : 2 * held(stage >= Shard::zero1));
}

bool is_family(const std::string& name) {
  return std::find(kFamilies.begin(), kFamilies.end(), name) != kFamilies.end();
}

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
  if (config.model.family == "gpt2" && config.model.width % config.model.heads != 0) {
    const int64_t heads = nearest_number(config.model.heads, divisors(config.model.width));
    const int64_t share = std::max<int64_t>(1, config.model.width / config.model.heads);
    throw UsageError(base::str("model.heads = ", config.model.heads,
                               " does not divide model.width = ", config.model.width,
                               ".\n  These fit: --set model.heads=", heads,
                               " or --set model.width=", share * config.model.heads));
  }
  if (config.model.family == "mlp" && config.model.tied) {
    throw UsageError(
        "model.family = \"mlp\" has a head of its own: its embedding has another shape.\n"
        "  This fits: --set model.tied=false");
  }
  if (config.model.family == "mlp" && config.memory.recompute == "selective") {
    throw UsageError(
        "memory.recompute = \"selective\" computes attention again, and model.family = \"mlp\" has "
        "none.\n  These fit: --set memory.recompute=block, which does so for each hidden layer, or "
        "--set memory.recompute=none");
  }
  if (config.parallel.data != -1 && config.parallel.data != ranks) {
    throw UsageError(base::str("parallel.data = ", config.parallel.data, ", but the job has ",
                               ranks, ranks == 1 ? " rank" : " ranks", ".\n  This fits: -n ",
                               config.parallel.data, ", or --set parallel.data=auto"));
  }
  check_batch(config, ranks);
  check_sharding(config, ranks);
  offload_of(config);
  check_optimizer(config);
  check_log(config);
}

}  // namespace lockstep::plan
