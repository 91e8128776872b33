#include "lockstep/plan/detail/config_table.h"

#include <limits>

#include "lockstep/plan/engines.h"
#include "lockstep/plan/optimizers.h"
#include "lockstep/plan/tokenizers.h"

namespace lockstep::plan::detail {
namespace {

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

}  // namespace

const std::vector<Row>& config_table() {
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
      {"run.on_nan", "when loss or gradient is no number: stop, skip the step, or rewind",
       Choice{AT(run.on_nan), {"stop", "skip", "rewind"}}},
      {"run.on_spike", "when the loss leaps: nothing (none), skip the step, or rewind",
       Choice{AT(run.on_spike), {"none", "skip", "rewind"}}},
      {"run.spike_factor", "a loss above this many times the mean of late steps is a leap",
       Real{AT(run.spike_factor), 1, 1e9, kAbove}},
      {"run.rewind_every", "steps between the copies in memory that rewind goes back to",
       Whole{AT(run.rewind_every), 1, kMany}},
      {"run.resume",
       "where the run goes on from: after a restart its own newest checkpoint (auto), nowhere "
       "(never), or a run folder or checkpoint",
       Text{AT(run.resume)}},
      {"run.may_change",
       "settings in which a resumed run may differ from what it was, as \"optim.lr, run.steps\"",
       Text{AT(run.may_change), /*may_be_empty=*/true}},
      {"run.from",
       "start weights in the place of drawn ones: a run, checkpoint, model file or Hugging Face "
       "folder; empty: none",
       Text{AT(run.from), /*may_be_empty=*/true}},

      {"model.family", "kind of model: gpt2, llama, mlp or resnet, or one that run.worker knows",
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

      {"model.norm",
       "normalisation of resnet: over the batch of all ranks (sync), of a leaf (batch), over "
       "groups "
       "of channels (group), over all channels (layer)",
       Choice{AT(model.norm), {"sync", "batch", "group", "layer"}}},

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
      {"data.augment", "pictures are shifted and mirrored at random, with resnet",
       Flag{AT(data.augment)}},
      {"data.ramp_from", "global batch of the first steps, which grows to global_batch; 0: no ramp",
       Whole{AT(data.ramp_from), 0, 1 << 24}},
      {"data.ramp_steps", "steps in which the batch grows, in equal parts",
       Whole{AT(data.ramp_steps), 0, kMany}},

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
      {"numerics.kernels",
       "what computes a decoder's layers: Lockstep's kernels and oneDNN (fused), or LibTorch's "
       "operators (aten)",
       Choice{AT(numerics.kernels), {"fused", "aten"}}},

      {"precision.compute", "type of the operands of matrix products; masters and sums are fp32",
       Choice{AT(precision.compute), {"fp32", "bf16", "fp16"}}},
      {"precision.loss_scale",
       "what gradients are multiplied by on their way, with fp16: dynamic, or a power of two",
       Text{AT(precision.loss_scale), false, /*or_number=*/true}},
      {"precision.first_scale", "loss scale of the first step, with dynamic",
       Real{AT(precision.first_scale), 1, 16'777'216}},
      {"precision.min_scale", "smallest loss scale, with dynamic",
       Real{AT(precision.min_scale), 1, 16'777'216}},
      {"precision.growth_steps", "steps without overflow after which the loss scale is doubled",
       Whole{AT(precision.growth_steps), 1, kMany}},
      {"precision.hysteresis", "overflows after which the loss scale is halved",
       Whole{AT(precision.hysteresis), 1, 1'000}},

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
      {"optim.ema",
       "decay of the parameters' moving average, which is evaluated and saved, too; 0: none",
       Real{AT(optim.ema), 0, 1, false, kBelow}},
      {"optim.frozen", "parameters that are not trained, as \"wte.*, h.0.*\"; empty: none",
       Text{AT(optim.frozen), /*may_be_empty=*/true}},

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

      {"checkpoint.every", "steps between checkpoints; 0: where the run is asked for one or stops",
       Whole{AT(checkpoint.every), 0, kMany}},
      {"checkpoint.keep", "newest checkpoints that are kept", Whole{AT(checkpoint.keep), 1, kMany}},
      {"checkpoint.keep_every",
       "checkpoints of every so many steps are kept, too; 0: no more than the newest",
       Whole{AT(checkpoint.keep_every), 0, kMany}},
      {"checkpoint.async", "written from a copy in memory while training goes on",
       Flag{AT(checkpoint.async)}},
      {"checkpoint.fall_back", "resume from an older checkpoint where the newest is damaged",
       Flag{AT(checkpoint.fall_back)}},

      {"log.every", "steps between progress lines", Whole{AT(log.every), 1, kMany}},
      {"log.eval_every", "steps between evaluations; 0: at the end only",
       Whole{AT(log.eval_every), 0, kMany}},
      {"log.tensorboard", "write TensorBoard events", Flag{AT(log.tensorboard)}},
      {"log.http", "HOST:PORT that serves /metrics to Prometheus; port 0: a free one; empty: none",
       Text{AT(log.http), /*may_be_empty=*/true}},
      {"log.noise_scale", "measure the gradient noise scale: the batch that the run could use",
       Flag{AT(log.noise_scale)}},
      {"log.profile", "time, operations and bytes of each layer, at the end",
       Flag{AT(log.profile)}},
      {"log.trace_steps",
       "steps whose operations trace.json shows, as \"5\" or \"5-7\"; empty: none",
       Text{AT(log.trace_steps), /*may_be_empty=*/true}},
      {"log.digest_every",
       "steps between digests of the parameters in metrics.jsonl, for bisect; 0: none",
       Whole{AT(log.digest_every), 0, kMany}},
  };
  return rows;
}

#undef AT

}  // namespace lockstep::plan::detail
