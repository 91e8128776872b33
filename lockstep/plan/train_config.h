/// The resolved settings of a training run: a value that the command makes, the worker carries out,
/// and the run folder keeps. One table (`config_keys`) says each key's name, meaning and range;
/// file parser, `--set`, `--print-config` and the JSON form are all made from it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "lockstep/plan/algorithm_table.h"

namespace lockstep::plan {

/// Kinds of model that Lockstep brings.
inline constexpr std::array<const char*, 4> kFamilies = {"gpt2", "llama", "mlp", "resnet"};
bool is_family(const std::string& name);

struct TrainConfig {
  struct {
    std::string name = "run";
    int64_t seed = 1337;
    int64_t steps = 600;
    int64_t check_every = 100;  // 0: never
    std::string dir = "runs";
    std::string worker = "";        // empty: lockstep-worker
    std::string synthetic_compute;  // "20,20,20": milliseconds slept in the place of computing
    std::string on_nan = "stop";    // stop | skip | rewind
    std::string on_spike = "none";  // none | skip | rewind
    double spike_factor = 3;
    int64_t rewind_every = 50;
    std::string resume = "auto";  // auto | never | a run folder or checkpoint to go on from
    std::string may_change;       // keys in which a resumed run may differ from what it was
    std::string from;             // start weights: a model, checkpoint or folder of another program
  } run;
  struct {
    std::string family = "gpt2";  // gpt2 | llama | mlp | resnet, or one that run.worker knows
    std::string options = "";     // what a family of one's own makes of it
    int64_t layers = 4;
    int64_t heads = 4;
    int64_t kv_heads = 0;  // 0: as many as heads
    int64_t width = 128;
    int64_t ffn = 0;  // 0: four times the width; of llama 8/3, a multiple of 32
    int64_t context = 128;
    int64_t vocab = 0;  // 0 ("auto"): the tokenizer's
    double dropout = 0.0;
    bool tied = true;
    bool bias = true;
    double norm_eps = 1e-5;
    double rope_theta = 10'000;  // of llama's rotary positions
    double init_std = 0.02;
    std::string norm = "sync";  // of resnet: sync | batch | group | layer
  } model;
  struct {
    std::string train = "data/austen/train.bin";  // or "0.7:a.bin, 0.3:b.bin"
    std::string valid = "data/austen/val.bin";
    std::string tokenizer = "bytes";  // a name of plan/tokenizers.h
    int64_t global_batch = 16;
    int64_t micro_batch = 4;
    int64_t eval_batches = 16;
    bool shuffle = true;
    bool augment = false;   // of resnet
    int64_t ramp_from = 0;  // 0: global_batch from the first step on
    int64_t ramp_steps = 0;
  } data;
  struct {
    int64_t grains = 0;             // 0 ("auto")
    int64_t tensor_grains = 0;      // 0 ("auto"): parallel.tensor
    int64_t context_grains = 0;     // 0 ("auto"): parallel.context
    std::string kernels = "fused";  // fused | aten
  } numerics;
  struct {
    std::string compute = "fp32";        // fp32 | bf16 | fp16
    std::string loss_scale = "dynamic";  // with fp16; or a power of two
    double first_scale = 65'536;
    double min_scale = 1;
    int64_t growth_steps = 2'000;
    int64_t hysteresis = 1;
  } precision;
  struct {
    std::string name = "adamw";  // a name of plan/optimizers.h
    double lr = 4e-3;
    int64_t base_batch = 0;           // 0: lr is for the global batch as it is
    std::string lr_scaling = "none";  // none | linear | sqrt
    int64_t warmup_steps = 50;
    std::string decay = "cosine";  // cosine | linear | constant
    double min_lr_ratio = 0.1;
    double grad_clip = 1.0;  // 0: off
    double weight_decay = 0.1;
    double beta1 = 0.9;
    double beta2 = 0.95;
    double eps = 1e-8;
    double momentum = 0.9;  // of sgd and lars
    double trust = 0.001;   // of lars
    double ema = 0;         // 0: none
    std::string frozen;     // patterns of parameters that are not trained: "wte.*, h.0.*"
  } optim;
  struct {
    int64_t data = -1;                           // -1: what the world leaves
    std::string shard = "none";                  // none | zero1 | zero2 | zero3
    int64_t replicas = 1;                        // groups that each hold all shards
    int64_t prefetch = 1;                        // units gathered ahead
    std::string reshard_after_forward = "auto";  // auto | always | never
    int64_t tensor = 1;                          // ranks that share each layer
    int64_t context = 1;                         // ranks that share each sequence
    bool sequence = false;                       // they divide the sequence between layers
    int64_t pipeline = 1;                        // stages
    std::string schedule = "1f1b";  // a name of plan/pipeline_schedule.h, or a CSV file
    int64_t chunks = 1;             // a stage's pieces of the model
    std::string stages;             // "3,2,3": layers of each piece; empty: even
  } parallel;
  struct {
    std::string engine = "shm";  // of plan/engines.h
    double bucket_mb = 25;
    double first_bucket_mb = 1;
    bool overlap = true;
    std::string algorithm = "auto";  // auto | direct | halving | binomial
    std::string table;               // a file of `lockstep bench --tune`; empty: built-in rules
    double timeout_s = 120;
  } comm;
  struct {
    std::string recompute = "none";  // none | selective | block
    std::string offload = "none";    // none | disk
    std::string offload_kinds = "auto";
    std::string offload_dir;  // empty: the run folder
    int64_t limit_mb = 0;     // 0: none
  } memory;
  struct {
    int64_t every = 0;       // steps; 0: on request and where a run stops
    int64_t keep = 3;        // the newest
    int64_t keep_every = 0;  // and those of every so many steps; 0: no more
    bool async = true;
    bool fall_back = false;  // to an older one where the newest is damaged
  } checkpoint;
  struct {
    int64_t every = 10;
    int64_t eval_every = 100;  // 0: at the end only
    bool tensorboard = true;
    std::string http;  // "HOST:PORT" of /metrics for Prometheus; empty: none
    bool noise_scale = false;
    bool profile = false;
    std::string trace_steps;   // "5" or "5-7": the steps that trace.json shows; empty: none
    int64_t digest_every = 0;  // 0: never
  } log;
  /// What comm.table says for the ranks of the run. No key: the command that starts the run reads
  /// the file once, and all ranks follow what it found.
  AlgorithmTable algorithms;
  /// The text of the file that parallel.schedule names, read by the same command.
  std::string schedule_csv;
};

/// One key of the table.
struct ConfigKey {
  std::string name;  // "optim.lr"
  std::string doc;   // what it does, its unit, its range in words
};

const std::vector<ConfigKey>& config_keys();

/// Sets one key from text, as in `--set`: "4e-3", "true", "auto", "cosine". Throws UsageError:
/// unknown key (with the nearest name), wrong type, out of range (with the range).
void set_key(TrainConfig& config, const std::string& key, const std::string& text);

/// The value as text that `set_key` reads back exactly.
std::string get_key(const TrainConfig& config, const std::string& key);

/// The same with typed values, as a TOML or JSON file has them: "600" is no whole number there.
void set_value(TrainConfig& config, const std::string& key, const nlohmann::json& value);
nlohmann::json get_value(const TrainConfig& config, const std::string& key);

/// {"run": {"name": ...}, ...} and back. `from_json` refuses what it does not know; a key that is
/// left out keeps its default.
nlohmann::json to_json(const TrainConfig& config);
TrainConfig from_json(const nlohmann::json& json);

/// The presets: "nano" (the demo), "nano8" (the same with 8 layers) and "small" (the model of
/// docs/performance). Throws UsageError with the nearest name.
TrainConfig preset(const std::string& name);
std::vector<std::string> preset_names();

/// Token ids of the model: model.vocab, or where that is "auto" the tokenizer's.
int64_t resolved_vocab(const TrainConfig& config);

/// Inner width of the feed-forward part: model.ffn, or what it is by default.
int64_t feed_forward_width(const TrainConfig& config);

/// Parameters of the model, a tied head counted once.
int64_t parameter_count(const TrainConfig& config);

/// The least that a rank of `ranks` holds all the time, in bytes: fp32 masters, gradients and the
/// optimizer's moments, with AdamW 16 bytes a parameter, what is divided as parallel.shard says and
/// without what is offloaded.
int64_t state_bytes_per_rank(const TrainConfig& config, int ranks);

/// Rules between keys, for a world of `ranks`: heads divide width, micro_batch divides
/// global_batch, grains fit, no more data ranks than leaves, parallel.data is -1 or `ranks`...
/// Throws UsageError: rule, numbers, nearest setting that fits.
void check(const TrainConfig& config, int ranks);

}  // namespace lockstep::plan
