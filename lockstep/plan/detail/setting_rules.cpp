#include "lockstep/plan/detail/setting_rules.h"

#include <algorithm>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/plan/offload.h"
#include "lockstep/plan/resume_rules.h"
#include "lockstep/plan/step_range.h"
#include "lockstep/plan/synthetic_compute.h"

namespace lockstep::plan {
namespace {

/// What only some optimizers read is refused with the others.
void check_optimizer_options(const TrainConfig& config) {
  const TrainConfig usual;
  const std::string& name = config.optim.name;
  const struct {
    const char* key;
    std::vector<std::string> readers;  // those that read it
  } options[] = {{"optim.beta1", {"adamw", "lamb"}},
                 {"optim.beta2", {"adamw", "lamb"}},
                 {"optim.eps", {"adamw", "lamb"}},
                 {"optim.momentum", {"sgd", "lars"}},
                 {"optim.trust", {"lars"}}};
  for (const auto& [key, readers] : options) {
    if (get_key(config, key) == get_key(usual, key)) continue;
    if (std::find(readers.begin(), readers.end(), name) != readers.end()) continue;
    std::string others;
    for (const std::string& reader : readers) others += ", or --set optim.name=" + reader;
    throw UsageError(base::str(key, " = ", get_key(config, key),
                               " has no effect with optim.name = ", "\"", name,
                               "\".\n  These fit: --set ", key, "=", get_key(usual, key), others));
  }
  if (name != "adamw" && offload_of(config).optimizer) {
    throw UsageError(base::str(
        "memory.offload = \"", config.memory.offload, "\" keeps the optimizer's state in a file, ",
        "which adamw can and optim.name = \"", name,
        "\" cannot.\n  These fit: --set "
        "optim.name=adamw, --set memory.offload=none, or --set memory.offload_kinds=activations"));
  }
}

}  // namespace

void check_optimizer(const TrainConfig& config) {
  check_optimizer_options(config);
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

void check_texts(const TrainConfig& config) {
  const std::string& times = config.run.synthetic_compute;
  if (!times.empty()) parse_synthetic(times);
  for (const char* const key : {"run.from", "optim.frozen"}) {
    if (times.empty() || get_key(config, key).empty()) continue;
    throw UsageError(base::str(key,
                               " is of a model's parameters, and run.synthetic_compute sleeps in ",
                               "the place of a model.\n  Set one of the two."));
  }
  may_change_of(config);
  const StepRange traced = parse_trace_steps(config.log.trace_steps);
  if (traced.first > config.run.steps) {
    throw UsageError(base::str("log.trace_steps = \"", config.log.trace_steps,
                               "\", but the last step is run.steps = ", config.run.steps,
                               ".\n  This fits: --set log.trace_steps=", config.run.steps));
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

}  // namespace lockstep::plan
