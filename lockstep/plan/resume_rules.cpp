#include "lockstep/plan/resume_rules.h"

#include <algorithm>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/plan/run_layout.h"

namespace lockstep::plan {
namespace {

constexpr const char* kModel = "the saved state is of another model";
constexpr const char* kOrder = "the samples seen so far were counted otherwise";
constexpr const char* kBits = "sums are cut otherwise";
constexpr const char* kMoments = "the saved state is of another optimizer";
constexpr const char* kStart = "it acts at the start of a run only";

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::vector<std::string> changeable_names() {
  std::vector<std::string> names = {kIdentity};
  for (const ResumeRule& rule : resume_rules()) {
    if (rule.may == MayChange::if_named) names.emplace_back(rule.key);
  }
  return names;
}

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// `--set` that lets `more` change beside what may already.
std::string allowing(const TrainConfig& config, const std::vector<std::string>& more) {
  std::vector<std::string> all = may_change_of(config);
  all.insert(all.end(), more.begin(), more.end());
  std::string list;
  for (const std::string& name : all) list += (list.empty() ? "" : ",") + name;
  return "--set run.may_change=" + list;
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

/// A word of an identity (plan/numeric_identity.h): what it says, and which names of run.may_change
/// let it be another.
struct Part {
  const char* what;
  std::vector<std::string> names;
};

Part part_of(size_t from_end, const std::string& word) {
  switch (from_end) {
    case 0:
      return {"threads a rank", {}};
    case 1:
      return {"instruction set", {kIdentity}};
    case 2:
      return {"kernels", {kIdentity}};
    case 3:
      return {"compute type", {"precision.compute"}};
    default:
      break;
  }
  switch (word[0]) {
    case 'B':
      return {"global batch", {}};
    case 'b':
      return {"micro-batch", {}};
    case 'G':
      return {"grains", {}};
    case 'M':
      return {"micro-batches a grain", {}};
    case 'T':
      return {"tensor grains", {}};
    default:
      return {"context grains", {}};
  }
}

}  // namespace

const std::vector<ResumeRule>& resume_rules() {
  constexpr auto freely = MayChange::freely;
  constexpr auto if_named = MayChange::if_named;
  constexpr auto never = MayChange::never;
  static const std::vector<ResumeRule> rules = {
      {"run.name", freely, ""},
      {"run.seed", never, "every random number of the run comes from it"},
      {"run.steps", if_named, ""},
      {"run.check_every", freely, ""},
      {"run.dir", freely, ""},
      {"run.worker", freely, ""},
      {"run.synthetic_compute", never, "a run that sleeps has learned nothing"},
      {"run.on_nan", if_named, ""},
      {"run.on_spike", if_named, ""},
      {"run.spike_factor", if_named, ""},
      {"run.rewind_every", if_named, ""},
      {"run.resume", freely, ""},
      {"run.may_change", freely, ""},
      {"run.from", freely, ""},  // was read before the first step

      {"model.family", never, kModel},
      {"model.options", never, kModel},
      {"model.layers", never, kModel},
      {"model.heads", never, kModel},
      {"model.kv_heads", never, kModel},
      {"model.width", never, kModel},
      {"model.ffn", never, kModel},
      {"model.context", never, kModel},
      {"model.vocab", never, kModel},
      {"model.dropout", if_named, ""},
      {"model.tied", never, kModel},
      {"model.bias", never, kModel},
      {"model.norm_eps", never, kModel},
      {"model.rope_theta", never, kModel},
      {"model.init_std", never, kStart},
      {"model.norm", never, kModel},

      // A path: the same tokens may lie elsewhere. Who names it says that they are the same, or
      // means to go on with others.
      {"data.train", if_named, ""},
      {"data.valid", if_named, ""},
      {"data.tokenizer", never, kModel},
      {"data.global_batch", never, kOrder},
      {"data.micro_batch", never, kBits},
      {"data.eval_batches", if_named, ""},
      {"data.shuffle", never, kOrder},
      {"data.augment", if_named, ""},
      {"data.ramp_from", never, kOrder},
      {"data.ramp_steps", never, kOrder},

      {"numerics.grains", never, kBits},
      {"numerics.tensor_grains", never, kBits},
      {"numerics.context_grains", never, kBits},
      {"numerics.kernels", never, "other kernels round otherwise"},

      {"precision.compute", if_named, ""},
      {"precision.loss_scale", if_named, ""},
      {"precision.first_scale", never, kStart},
      {"precision.min_scale", if_named, ""},
      {"precision.growth_steps", if_named, ""},
      {"precision.hysteresis", if_named, ""},

      {"optim.name", never, kMoments},
      {"optim.lr", if_named, ""},
      {"optim.base_batch", if_named, ""},
      {"optim.lr_scaling", if_named, ""},
      {"optim.warmup_steps", if_named, ""},
      {"optim.decay", if_named, ""},
      {"optim.min_lr_ratio", if_named, ""},
      {"optim.grad_clip", if_named, ""},
      {"optim.weight_decay", if_named, ""},
      {"optim.beta1", if_named, ""},
      {"optim.beta2", if_named, ""},
      {"optim.eps", if_named, ""},
      {"optim.momentum", if_named, ""},
      {"optim.trust", if_named, ""},
      {"optim.ema", never, "the saved average is of another decay"},
      {"optim.frozen", never, "the saved moments are of other parameters"},

      {"parallel.data", freely, ""},
      {"parallel.shard", freely, ""},
      {"parallel.replicas", freely, ""},
      {"parallel.prefetch", freely, ""},
      {"parallel.reshard_after_forward", freely, ""},
      {"parallel.tensor", freely, ""},
      {"parallel.context", freely, ""},
      {"parallel.sequence", freely, ""},
      {"parallel.pipeline", freely, ""},
      {"parallel.schedule", freely, ""},
      {"parallel.chunks", freely, ""},
      {"parallel.stages", freely, ""},

      {"comm.engine", freely, ""},
      {"comm.bucket_mb", freely, ""},
      {"comm.first_bucket_mb", freely, ""},
      {"comm.algorithm", freely, ""},
      {"comm.table", freely, ""},
      {"comm.overlap", freely, ""},
      {"comm.timeout_s", freely, ""},

      {"memory.recompute", freely, ""},
      {"memory.offload", freely, ""},
      {"memory.offload_kinds", freely, ""},
      {"memory.offload_dir", freely, ""},
      {"memory.limit_mb", freely, ""},

      {"checkpoint.every", freely, ""},
      {"checkpoint.keep", freely, ""},
      {"checkpoint.keep_every", freely, ""},
      {"checkpoint.async", freely, ""},
      {"checkpoint.fall_back", freely, ""},

      {"log.every", freely, ""},
      {"log.eval_every", freely, ""},
      {"log.tensorboard", freely, ""},
      {"log.http", freely, ""},
      {"log.noise_scale", freely, ""},
      {"log.profile", freely, ""},
      {"log.trace_steps", freely, ""},
      {"log.digest_every", freely, ""},
  };
  return rules;
}

std::vector<std::string> may_change_of(const TrainConfig& config) {
  const std::vector<std::string> known = changeable_names();
  std::vector<std::string> names;
  std::istringstream in(config.run.may_change);
  for (std::string piece; std::getline(in, piece, ',');) {
    const std::string name = trimmed(piece);
    if (has(known, name)) {
      names.push_back(name);
      continue;
    }
    for (const ResumeRule& rule : resume_rules()) {
      if (name != rule.key) continue;
      throw UsageError(base::str("run.may_change names ", name, ", which ",
                                 rule.may == MayChange::freely
                                     ? "may change without: leave it out"
                                     : base::str("never changes in a resumed run: ", rule.why),
                                 "."));
    }
    const std::string near = base::nearest(name, known);
    throw UsageError(base::str("run.may_change = \"", config.run.may_change,
                               "\": there is no key \"", name,
                               "\".\n  It wants keys with commas between them",
                               near.empty() ? "" : ". Did you mean \"" + near + "\"?"));
  }
  return names;
}

void keep_grains(TrainConfig& now, const TrainConfig& saved) {
  const auto keep = [](int64_t& grains, int64_t would_be, int64_t were) {
    if (grains == 0 && would_be != were) grains = were;
  };
  auto& numerics = now.numerics;
  // Those of "auto" are of the batch alone, which cannot change.
  if (numerics.grains == 0) numerics.grains = saved.numerics.grains;
  keep(numerics.tensor_grains, tensor_grains_of(now), tensor_grains_of(saved));
  keep(numerics.context_grains, context_grains_of(now), context_grains_of(saved));
}

void check_resume(const TrainConfig& saved, const TrainConfig& now, const std::string& from) {
  const std::vector<std::string> named = may_change_of(now);
  // "auto" is what it stands for.
  TrainConfig before = saved;
  TrainConfig after = now;
  const bool same_batch = saved.data.global_batch == now.data.global_batch &&
                          saved.data.micro_batch == now.data.micro_batch;
  for (TrainConfig* config : {&before, &after}) {
    if (same_batch) config->numerics.grains = batch_of(*config).grains;
    config->numerics.tensor_grains = tensor_grains_of(*config);
    config->numerics.context_grains = context_grains_of(*config);
    config->model.vocab = resolved_vocab(*config);
  }
  std::string lines;
  std::vector<std::string> to_name;
  bool never = false;
  for (const ResumeRule& rule : resume_rules()) {
    const std::string was = get_key(before, rule.key);
    const std::string is = get_key(after, rule.key);
    if (was == is || rule.may == MayChange::freely || has(named, rule.key)) continue;
    lines += base::str("\n  ", rule.key, " = ", is.empty() ? "\"\"" : is, ", but it was ",
                       was.empty() ? "\"\"" : was);
    if (rule.may == MayChange::if_named) {
      to_name.emplace_back(rule.key);
    } else {
      lines += base::str(": ", rule.why);
      never = true;
    }
  }
  if (lines.empty()) return;
  std::string help;
  if (!to_name.empty()) {
    help += base::str("\n  ", never ? "For the others: " : "", allowing(now, to_name),
                      " makes it another run from here on; else leave ",
                      to_name.size() == 1 ? "it" : "them", " as it was.");
  }
  if (never) {
    help +=
        base::str("\n  A new run that begins with its weights, and with these settings: --from ",
                  from, " in the place of --resume.");
  }
  throw UsageError(base::str("cannot go on from ", from, " with other settings:", lines, help));
}

void check_identity(const std::string& saved, const std::string& now, const TrainConfig& config) {
  if (saved == now) return;
  const std::vector<std::string> named = may_change_of(config);
  const std::vector<std::string> before = words_of(saved);
  const std::vector<std::string> after = words_of(now);
  std::vector<std::string> differing;
  std::vector<std::string> to_name;
  bool never = before.size() != after.size();
  if (never) differing.push_back(base::str("context grains: ", now, ", but it was ", saved));
  for (size_t i = 0; !never && i < before.size(); ++i) {
    if (before[i] == after[i]) continue;
    const Part part = part_of(before.size() - 1 - i, before[i]);
    const auto may = [&](const std::string& name) { return has(named, name); };
    if (std::any_of(part.names.begin(), part.names.end(), may)) continue;
    differing.push_back(base::str(part.what, ": ", after[i], ", but it was ", before[i]));
    if (part.names.empty()) never = true;
    for (const std::string& name : part.names) {
      if (!has(to_name, name)) to_name.push_back(name);
    }
  }
  if (differing.empty()) return;
  std::string text = "cannot go on with the same bits:";
  for (const std::string& line : differing) text += "\n  " + line;
  text += never ? "\n  A run keeps its identity. Other grains or batches are a new run: --from."
                : base::str("\n  Go on where it was saved, or accept other bits from here on: ",
                            allowing(config, to_name), ".");
  throw UsageError(text);
}

}  // namespace lockstep::plan
