#include "lockstep/plan/train_config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <variant>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/plan/engines.h"
#include "lockstep/plan/optimizers.h"
#include "lockstep/plan/tokenizers.h"

namespace lockstep::plan {
namespace {

using Json = nlohmann::json;

// The five shapes a value can have. `at` finds the member that a key stands for.
struct Whole {
  int64_t* (*at)(TrainConfig&);
  int64_t lo;
  int64_t hi;
  std::optional<int64_t> automatic = {};  // what "auto" is stored as
};
struct Real {
  double* (*at)(TrainConfig&);
  double lo;
  double hi;
  bool above_lo = false;  // lo itself is refused
  bool below_hi = false;  // hi itself is refused
};
struct Flag {
  bool* (*at)(TrainConfig&);
};
struct Text {
  std::string* (*at)(TrainConfig&);
  bool may_be_empty = false;
};
struct Choice {
  std::string* (*at)(TrainConfig&);
  std::vector<std::string> words;
};

struct Row {
  std::string name;
  std::string doc;
  std::variant<Whole, Real, Flag, Text, Choice> kind;
};

template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};

constexpr int64_t kMany = 1'000'000'000;
constexpr bool kAbove = true;
constexpr bool kBelow = true;

std::vector<std::string> tokenizer_names() {
  std::vector<std::string> names;
  for (const TokenizerName& tokenizer : kTokenizers) names.emplace_back(tokenizer.name);
  return names;
}

std::vector<std::string> engine_names() {
  std::vector<std::string> names;
  for (const EngineName& engine : kEngines) names.emplace_back(engine.name);
  return names;
}

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const OptimizerName& optimizer : kOptimizers) names.emplace_back(optimizer.name);
  return names;
}

#define AT(member) [](TrainConfig& c) { return &c.member; }

const std::vector<Row>& table() {
  static const std::vector<Row> rows = {
      {"run.name", "first part of the run folder's name", Text{AT(run.name)}},
      {"run.seed", "start of every random number of the run",
       Whole{AT(run.seed), 0, std::numeric_limits<int64_t>::max()}},
      {"run.steps", "optimizer steps", Whole{AT(run.steps), 0, kMany}},
      {"run.check_every", "steps from one comparison of the ranks' parameters to the next; 0: none",
       Whole{AT(run.check_every), 0, kMany}},
      {"run.dir", "folder that run folders are made in", Text{AT(run.dir)}},
      {"run.worker", "program of the ranks, for models of one's own; empty: lockstep-worker",
       Text{AT(run.worker), /*may_be_empty=*/true}},
      {"run.synthetic_compute",
       "milliseconds that a micro-batch sleeps on each piece of the model in the place of "
       "computing: forward, backward, weight, as \"20,20,20\"; empty: it computes",
       Text{AT(run.synthetic_compute), /*may_be_empty=*/true}},

      {"model.family", "kind of model: gpt2, llama or mlp, or one that run.worker knows",
       Text{AT(model.family)}},
      {"model.options", "settings of a family of one's own, as its program reads them",
       Text{AT(model.options), /*may_be_empty=*/true}},
      {"model.layers", "blocks", Whole{AT(model.layers), 1, 10'000}},
      {"model.heads", "attention heads a block; divides the width",
       Whole{AT(model.heads), 1, 65'536}},
      {"model.kv_heads",
       "heads of keys and values of llama, each of a group of heads; divides the heads; 0: as many",
       Whole{AT(model.kv_heads), 0, 65'536}},
      {"model.width", "elements of a token's vector", Whole{AT(model.width), 1, 1 << 20}},
      {"model.ffn",
       "inner width of the feed-forward part; 0: four times the width, of llama 8/3 of it",
       Whole{AT(model.ffn), 0, 1 << 22}},
      {"model.context", "tokens of a sequence", Whole{AT(model.context), 1, 1 << 20}},
      {"model.vocab", "token ids; auto: the tokenizer's",
       Whole{AT(model.vocab), 1, 1 << 22, /*automatic=*/0}},
      {"model.dropout", "share of elements dropped in training",
       Real{AT(model.dropout), 0, 1, false, kBelow}},
      {"model.tied", "the output head shares the embedding's weight", Flag{AT(model.tied)}},
      {"model.bias", "linear layers and norms have a bias", Flag{AT(model.bias)}},
      {"model.norm_eps", "added to the variance in layer norms",
       Real{AT(model.norm_eps), 0, 1, kAbove}},
      {"model.rope_theta", "base of the wavelengths of llama's rotary positions",
       Real{AT(model.rope_theta), 1, 1e12}},
      {"model.init_std", "standard deviation of the start weights",
       Real{AT(model.init_std), 0, 100, kAbove}},

      {"data.train", "token file of the training text, or several as \"0.7:a.bin, 0.3:b.bin\"",
       Text{AT(data.train)}},
      {"data.valid", "token file of the validation text", Text{AT(data.valid)}},
      {"data.tokenizer", "what the token ids are", Choice{AT(data.tokenizer), tokenizer_names()}},
      {"data.global_batch", "sequences in one optimizer step, all ranks together",
       Whole{AT(data.global_batch), 1, 1 << 24}},
      {"data.micro_batch", "sequences in one forward call; divides the global batch",
       Whole{AT(data.micro_batch), 1, 1 << 24}},
      {"data.eval_batches", "global batches in one evaluation",
       Whole{AT(data.eval_batches), 1, 1 << 24}},
      {"data.shuffle", "sequences in an order drawn anew each epoch", Flag{AT(data.shuffle)}},

      {"numerics.grains", "leaves a step is cut into; divides global_batch / micro_batch",
       Whole{AT(numerics.grains), 1, 1 << 16, /*automatic=*/0}},
      {"numerics.tensor_grains",
       "grains that layers are computed in, which tensor-parallel ranks share; auto: "
       "parallel.tensor",
       Whole{AT(numerics.tensor_grains), 1, 1 << 10, /*automatic=*/0}},
      {"numerics.context_grains",
       "grains that sequences are computed in, which context-parallel ranks share; auto: "
       "parallel.context",
       Whole{AT(numerics.context_grains), 1, 1 << 10, /*automatic=*/0}},

      {"optim.name", "optimizer", Choice{AT(optim.name), optimizer_names()}},
      {"optim.lr", "learning rate at the top of the schedule", Real{AT(optim.lr), 0, 100, kAbove}},
      {"optim.base_batch", "global batch that optim.lr was found for; 0: the one of this run",
       Whole{AT(optim.base_batch), 0, 1 << 24}},
      {"optim.lr_scaling", "how the rate grows from base_batch to global_batch",
       Choice{AT(optim.lr_scaling), {"none", "linear", "sqrt"}}},
      {"optim.warmup_steps", "steps in which the rate rises to the top",
       Whole{AT(optim.warmup_steps), 0, kMany}},
      {"optim.decay", "how the rate falls after warmup",
       Choice{AT(optim.decay), {"cosine", "linear", "constant"}}},
      {"optim.min_lr_ratio", "the last rate as a share of the top",
       Real{AT(optim.min_lr_ratio), 0, 1}},
      {"optim.grad_clip", "largest norm of the gradient; 0: no clipping",
       Real{AT(optim.grad_clip), 0, 1e9}},
      {"optim.weight_decay",
       "decay of matrices: decoupled with adamw, part of the update with lamb, of the gradient "
       "with "
       "sgd and lars",
       Real{AT(optim.weight_decay), 0, 100}},
      {"optim.beta1", "decay of the first moment, with adamw and lamb",
       Real{AT(optim.beta1), 0, 1, false, kBelow}},
      {"optim.beta2", "decay of the second moment, with adamw and lamb",
       Real{AT(optim.beta2), 0, 1, false, kBelow}},
      {"optim.eps", "added to the root of the second moment, with adamw and lamb",
       Real{AT(optim.eps), 0, 1, kAbove}},
      {"optim.momentum", "decay of the moment, with sgd and lars",
       Real{AT(optim.momentum), 0, 1, false, kBelow}},
      {"optim.trust", "step of a parameter as a share of its norm, with lars",
       Real{AT(optim.trust), 0, 100, kAbove}},

      {"parallel.data", "data-parallel ranks; auto: all ranks of the job",
       Whole{AT(parallel.data), 1, 1 << 16, /*automatic=*/-1}},
      {"parallel.shard",
       "what data-parallel ranks divide among them: nothing, optimizer state (zero1), gradients "
       "too "
       "(zero2), parameters too (zero3)",
       Choice{AT(parallel.shard), {"none", "zero1", "zero2", "zero3"}}},
      {"parallel.replicas", "groups of ranks that each hold all shards",
       Whole{AT(parallel.replicas), 1, 1 << 16}},
      {"parallel.prefetch", "units of parameters gathered ahead of their use, with zero3",
       Whole{AT(parallel.prefetch), 0, 64}},
      {"parallel.reshard_after_forward",
       "units freed after forward, with zero3: all but what backward needs at once (auto), all, "
       "none",
       Choice{AT(parallel.reshard_after_forward), {"auto", "always", "never"}}},
      {"parallel.tensor", "ranks that share each layer", Whole{AT(parallel.tensor), 1, 1 << 10}},
      {"parallel.context", "ranks that share each sequence (ring attention)",
       Whole{AT(parallel.context), 1, 1 << 10}},
      {"parallel.sequence",
       "tensor-parallel ranks divide the sequence between the layers they share",
       Flag{AT(parallel.sequence)}},
      {"parallel.pipeline", "stages that the layers are cut into",
       Whole{AT(parallel.pipeline), 1, 1 << 10}},
      {"parallel.schedule",
       "order of a stage's work: gpipe, 1f1b, interleaved, zero-bubble, zero-bubble-v, or a CSV "
       "file of one's own",
       Text{AT(parallel.schedule)}},
      {"parallel.chunks", "pieces of the model on each stage, with interleaved",
       Whole{AT(parallel.chunks), 1, 1 << 10}},
      {"parallel.stages", "layers of each piece of the model, as \"3,2,3\"; empty: even",
       Text{AT(parallel.stages), /*may_be_empty=*/true}},

      {"comm.engine",
       "what carries tensors between ranks: shared memory, one process, MPI or Gloo's TCP",
       Choice{AT(comm.engine), engine_names()}},
      {"comm.bucket_mb", "MiB of gradients that travel in one collective; with zero3 a unit's do",
       Real{AT(comm.bucket_mb), 0, 65'536, kAbove}},
      {"comm.first_bucket_mb", "MiB of the first bucket, small so that communication starts early",
       Real{AT(comm.first_bucket_mb), 0, 65'536, kAbove}},
      {"comm.algorithm", "of the sums over ranks: those that keep the bits for any number of ranks",
       Choice{AT(comm.algorithm), {"auto", "direct", "halving", "binomial"}}},
      {"comm.table",
       "file of `lockstep bench --tune`: which algorithm for which size, unless comm.algorithm is "
       "forced",
       Text{AT(comm.table), /*may_be_empty=*/true}},
      {"comm.overlap", "communicate while backward still runs", Flag{AT(comm.overlap)}},
      {"comm.timeout_s", "seconds a rank waits for its peers before it reports who is missing",
       Real{AT(comm.timeout_s), 0.1, 604'800}},

      {"memory.recompute",
       "activations computed again in backward instead of kept: none, those of attention, all of a "
       "block",
       Choice{AT(memory.recompute), {"none", "selective", "block"}}},
      {"memory.offload", "where state lives that is not at work",
       Choice{AT(memory.offload), {"none", "disk"}}},
      {"memory.offload_kinds",
       "what is offloaded: of parameters, optimizer, activations, joined by +; auto: all that the "
       "sharding allows but activations",
       Text{AT(memory.offload_kinds)}},
      {"memory.offload_dir", "folder of offloaded state; empty: the run folder",
       Text{AT(memory.offload_dir), /*may_be_empty=*/true}},
      {"memory.limit_mb", "MiB of tensors that a rank may hold; 0: no limit",
       Whole{AT(memory.limit_mb), 0, int64_t{1} << 40}},

      {"log.every", "steps between progress lines", Whole{AT(log.every), 1, kMany}},
      {"log.eval_every", "steps between evaluations; 0: at the end only",
       Whole{AT(log.eval_every), 0, kMany}},
      {"log.tensorboard", "write TensorBoard events", Flag{AT(log.tensorboard)}},
      {"log.http", "HOST:PORT that serves /metrics to Prometheus; port 0: a free one; empty: none",
       Text{AT(log.http), /*may_be_empty=*/true}},
      {"log.profile", "time, operations and bytes of each layer, at the end",
       Flag{AT(log.profile)}},
      {"log.trace_steps",
       "steps whose operations trace.json shows, as \"5\" or \"5-7\"; empty: none",
       Text{AT(log.trace_steps), /*may_be_empty=*/true}},
  };
  return rows;
}

#undef AT

/// The shortest text that reads back as the same double.
std::string shortest(double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value);
  return std::string(text.data(), end.ptr);
}

std::string range_of(const Row& row) {
  return std::visit(
      Overloaded{
          [](const Whole& w) {
            std::string text = w.hi == std::numeric_limits<int64_t>::max()
                                   ? base::str("a whole number from ", w.lo)
                                   : base::str("a whole number from ", w.lo, " to ", w.hi);
            return w.automatic ? text + " or \"auto\"" : text;
          },
          [](const Real& r) {
            return base::str("a number ", r.above_lo ? "above " : "from ", shortest(r.lo),
                             r.below_hi ? ", below " : " to ", shortest(r.hi));
          },
          [](const Flag&) { return std::string("true or false"); },
          [](const Text& t) {
            return std::string(t.may_be_empty ? "a text" : "a text that is not empty");
          },
          [](const Choice& c) {
            return c.words.size() == 1 ? base::str("\"", c.words[0], "\"")
                                       : "one of " + base::joined(c.words, " or ");
          },
      },
      row.kind);
}

[[noreturn]] void refuse(const Row& row, const std::string& written, const std::string& more = {}) {
  throw UsageError(base::str(row.name, " = ", written, " does not fit (", row.doc,
                             ").\n  It wants ", range_of(row), ".", more));
}

[[noreturn]] void unknown_key(const std::string& key) {
  std::vector<std::string> names;
  std::vector<std::string> sections;
  const size_t dot = key.find('.');
  const std::string section = key.substr(0, dot);
  std::vector<std::string> of_section;
  std::string same_last_part;
  for (const Row& row : table()) {
    names.push_back(row.name);
    const size_t at = row.name.find('.');
    if (sections.empty() || sections.back() != row.name.substr(0, at)) {
      sections.push_back(row.name.substr(0, at));
    }
    if (row.name.substr(0, at) == section) of_section.push_back(row.name.substr(at + 1));
    const std::string last = dot == std::string::npos ? key : key.substr(dot + 1);
    if (row.name.substr(at + 1) == last) same_last_part = row.name;
  }
  std::string near = base::nearest(key, names);
  if (near.empty()) near = same_last_part;
  std::string help;
  if (!near.empty()) {
    help = base::str("Did you mean \"", near, "\"?");
  } else if (!of_section.empty()) {
    help = base::str("The keys of [", section, "] are ", base::joined(of_section), ".");
  } else {
    help = base::str("The sections are ", base::joined(sections), ".");
  }
  throw UsageError(base::str("there is no key \"", key, "\".\n  ", help));
}

const Row& row_of(const std::string& key) {
  for (const Row& row : table()) {
    if (row.name == key) return row;
  }
  unknown_key(key);
}

// ---- typed values

void assign(TrainConfig& config, const Row& row, const Whole& w, const Json& value) {
  // A number for "auto" counts only where it cannot be taken for one that is meant: -1, not 0.
  if (w.automatic && (value == "auto" || (*w.automatic < 0 && value == *w.automatic))) {
    *w.at(config) = *w.automatic;
    return;
  }
  const bool fits_int64 = value.is_number_integer() &&
                          (!value.is_number_unsigned() ||
                           value.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()});
  if (!fits_int64) refuse(row, value.dump());
  const auto number = value.get<int64_t>();
  if (number < w.lo || number > w.hi) refuse(row, value.dump());
  *w.at(config) = number;
}

void assign(TrainConfig& config, const Row& row, const Real& r, const Json& value) {
  if (!value.is_number()) refuse(row, value.dump());
  const auto number = value.get<double>();
  const bool inside = std::isfinite(number) && (r.above_lo ? number > r.lo : number >= r.lo) &&
                      (r.below_hi ? number < r.hi : number <= r.hi);
  if (!inside) refuse(row, shortest(number));
  *r.at(config) = number;
}

void assign(TrainConfig& config, const Row& row, const Flag& f, const Json& value) {
  if (!value.is_boolean()) refuse(row, value.dump());
  *f.at(config) = value.get<bool>();
}

/// JSON holds Unicode text only, and so does a run folder's config.
bool is_unicode(const Json& text) {
  try {
    return !text.dump().empty();
  } catch (const Json::type_error&) {
    return false;
  }
}

void assign(TrainConfig& config, const Row& row, const Text& t, const Json& value) {
  if (!is_unicode(value)) throw UsageError(row.name + ": the text is not UTF-8");
  if (!value.is_string()) refuse(row, value.dump());
  const auto& text = value.get_ref<const std::string&>();
  if (text.empty() && !t.may_be_empty) refuse(row, value.dump());
  const bool control =
      std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  if (control) refuse(row, value.dump(), " It has no control characters.");
  // A name that wanders off would put the run folder outside run.dir.
  if (row.name == "run.name" &&
      (text.find('/') != std::string::npos || text[0] == '.' || text.size() > 100)) {
    refuse(row, value.dump(), " It has no slash, no leading dot and at most 100 bytes.");
  }
  *t.at(config) = text;
}

void assign(TrainConfig& config, const Row& row, const Choice& c, const Json& value) {
  if (!is_unicode(value)) throw UsageError(row.name + ": the text is not UTF-8");
  if (!value.is_string()) refuse(row, value.dump());
  const auto& word = value.get_ref<const std::string&>();
  if (std::find(c.words.begin(), c.words.end(), word) == c.words.end()) {
    const std::string near = base::nearest(word, c.words);
    refuse(row, value.dump(),
           near.empty() ? std::string() : base::str(" Did you mean \"", near, "\"?"));
  }
  *c.at(config) = word;
}

void assign(TrainConfig& config, const Row& row, const Json& value) {
  std::visit([&](const auto& kind) { assign(config, row, kind, value); }, row.kind);
}

// ---- text

/// Null where the text is no number of the kind.
template <class Number>
Json parsed(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return nullptr;
  return number;
}

/// The typed value that `text` writes.
Json typed(const Row& row, const std::string& text) {
  const auto number_or_refuse = [&](Json value) {
    if (value.is_null()) refuse(row, "\"" + text + "\"");
    return value;
  };
  return std::visit(Overloaded{
                        [&](const Whole& w) {
                          if (w.automatic && text == "auto") return Json("auto");
                          return number_or_refuse(parsed<int64_t>(text));
                        },
                        [&](const Real&) { return number_or_refuse(parsed<double>(text)); },
                        [&](const Flag&) {
                          if (text != "true" && text != "false") refuse(row, "\"" + text + "\"");
                          return Json(text == "true");
                        },
                        [&](const auto&) { return Json(text); },
                    },
                    row.kind);
}

}  // namespace

const std::vector<ConfigKey>& config_keys() {
  static const std::vector<ConfigKey> keys = [] {
    std::vector<ConfigKey> made;
    for (const Row& row : table()) made.push_back({row.name, row.doc + "; " + range_of(row)});
    return made;
  }();
  return keys;
}

void set_key(TrainConfig& config, const std::string& key, const std::string& text) {
  const Row& row = row_of(key);
  assign(config, row, typed(row, text));
}

std::string get_key(const TrainConfig& config, const std::string& key) {
  const Json value = get_value(config, key);
  if (value.is_string()) return value.get<std::string>();
  return value.is_number_float() ? shortest(value.get<double>()) : value.dump();
}

void set_value(TrainConfig& config, const std::string& key, const Json& value) {
  assign(config, row_of(key), value);
}

Json get_value(const TrainConfig& config, const std::string& key) {
  // The table finds members of a changeable config; it does not change them.
  auto& members = const_cast<TrainConfig&>(config);
  return std::visit(Overloaded{
                        [&](const Whole& w) {
                          const int64_t number = *w.at(members);
                          return w.automatic == number ? Json("auto") : Json(number);
                        },
                        [&](const auto& kind) { return Json(*kind.at(members)); },
                    },
                    row_of(key).kind);
}

Json to_json(const TrainConfig& config) {
  Json json = Json::object();
  for (const Row& row : table()) {
    const size_t dot = row.name.find('.');
    json[row.name.substr(0, dot)][row.name.substr(dot + 1)] = get_value(config, row.name);
  }
  if (!config.algorithms.rules.empty()) json["algorithms"] = to_json(config.algorithms);
  if (!config.schedule_csv.empty()) json["schedule_csv"] = config.schedule_csv;
  return json;
}

TrainConfig from_json(const Json& json) {
  if (!json.is_object()) throw UsageError("a config is an object of sections");
  TrainConfig config;
  for (const auto& [section, keys] : json.items()) {
    if (section == "algorithms") {
      config.algorithms = algorithm_table_from_json(keys);
      continue;
    }
    if (section == "schedule_csv" && keys.is_string()) {
      config.schedule_csv = keys.get<std::string>();
      continue;
    }
    if (!keys.is_object()) {
      throw UsageError(base::str("\"", section, "\" is no section with keys in it"));
    }
    for (const auto& [key, value] : keys.items()) set_value(config, section + "." + key, value);
  }
  return config;
}

}  // namespace lockstep::plan
