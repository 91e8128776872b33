#include "lockstep/plan/fitting.h"

#include <algorithm>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/plan/activation_bytes.h"
#include "lockstep/plan/offload.h"
#include "lockstep/plan/optimizers.h"
#include "lockstep/plan/run_layout.h"
#include "lockstep/plan/write_share.h"

namespace lockstep::plan {
namespace {

int64_t activation_peak(const TrainConfig& config) {
  // The form is that of one grain and one stage: others hold less of some things, twice of others.
  if (config.model.family != "gpt2" || tensor_grains_of(config) > 1 ||
      context_grains_of(config) > 1 || config.parallel.pipeline > 1) {
    return 0;
  }
  return decoder_activation_bytes(decoder_shape_of(config), recompute_of(config.memory.recompute))
      .peak;
}

/// A change of settings, and how much it costs the run: sums compare changes.
struct Change {
  TrainConfig config;
  std::string text;
  int cost = 0;
  int64_t bytes = 0;
  bool other_bits = false;  // another micro-batch is another run
};

void add_changes(const TrainConfig& config, int ranks, std::vector<Change>& changes) {
  const auto set = [](Change& change, const char* key, const std::string& value, int cost) {
    if (get_key(change.config, key) == value) return;
    set_key(change.config, key, value);
    change.text += base::str(change.text.empty() ? "" : " ", "--set ", key, "=", value);
    change.cost += cost;
  };
  const std::vector<std::pair<const char*, int>> stages = {
      {"none", 0}, {"zero1", 1}, {"zero2", 2}, {"zero3", 3}};
  const std::vector<std::pair<const char*, int>> recomputes = {
      {"none", 0}, {"selective", 1}, {"block", 4}};
  std::vector<int64_t> micros;
  for (int64_t micro = config.data.micro_batch; micro >= 1; micro /= 2) micros.push_back(micro);
  for (const auto& [stage, stage_cost] : stages) {
    for (const auto& [recompute, recompute_cost] : recomputes) {
      for (const char* offload : {"none", "disk"}) {
        for (size_t m = 0; m < micros.size(); ++m) {
          Change change{.config = config, .text = {}, .cost = 0};
          set(change, "parallel.shard", stage, stage_cost);
          set(change, "memory.recompute", recompute, recompute_cost);
          set(change, "memory.offload", offload, 8);
          if (m > 0) {
            // The leaves stay what they are where they can: then the run is the nearest to this.
            set(change, "data.micro_batch", std::to_string(micros[m]), 6 * static_cast<int>(m));
            change.other_bits = true;
          }
          try {
            check(change.config, ranks);
          } catch (const UsageError&) {
            continue;
          }
          if (!change.text.empty()) changes.push_back(std::move(change));
        }
      }
    }
  }
}

bool rewinds(const TrainConfig& config) {
  return config.run.on_nan == "rewind" || config.run.on_spike == "rewind";
}

int64_t elements_of(const std::vector<Piece>& pieces) {
  int64_t elements = 0;
  for (const Piece& piece : pieces) elements += piece.size();
  return elements;
}

/// Pieces of parameters that are not trained, as data-parallel rank `shard` of a replica holds
/// them.
std::vector<Piece> fixed_pieces(const StepInputs& inputs, int shard) {
  if (inputs.shards.gathers()) return inputs.shards.pieces(shard, /*trained=*/false);
  std::vector<Piece> pieces;
  for (size_t p = 0; p < inputs.table.params.size(); ++p) {
    const Param& param = inputs.table.params[p];
    if (!param.trainable) pieces.push_back({.param = static_cast<int>(p), .hi = param.numel});
  }
  return pieces;
}

/// What no form has: token ids, masks, rounding of blocks.
int64_t with_margin(int64_t bytes) { return bytes + bytes / 64 + 64 * KiB; }

}  // namespace

int64_t checkpoint_bytes(const TrainConfig& config, const StepInputs& inputs, int rank,
                         const std::vector<bool>& counts) {
  const ShardLayout& shards = inputs.shards;
  const int shard = rank % shards.options.ranks;
  const int everyone = inputs.leaves.ranks;
  // Where state is divided, ranks of the other replicas hold the same.
  const int writers = shards.sharded() ? shards.options.replicas : everyone;
  const int writer = shards.sharded() ? rank / shards.options.ranks : rank;
  const bool fixed_divided = shards.gathers();
  const auto share = [&counts](std::vector<Piece> pieces, int of_writer, int of_writers) {
    std::erase_if(pieces, [&counts](const Piece& piece) {
      return !counts.empty() && !counts[static_cast<size_t>(piece.param)];
    });
    return elements_of(write_share(pieces, of_writer, of_writers));
  };
  const int64_t kinds = 1 + traits_of(inputs.optimizer).moments + (config.optim.ema > 0 ? 1 : 0);
  return 4 * (kinds * share(shards.pieces(shard), writer, writers) +
              share(fixed_pieces(inputs, shard), fixed_divided ? writer : rank,
                    fixed_divided ? writers : everyone));
}

RankMemory planned_memory(const TrainConfig& config, const StepInputs& inputs, int rank,
                          const std::vector<bool>& counts) {
  const Offload offload = offload_of(config);
  const ShardLayout& shards = inputs.shards;
  RankMemory memory{.state = planned_state(inputs, rank), .activations = activation_peak(config)};
  const int shard = rank % shards.options.ranks;
  int64_t owned = 0;  // bytes of the masters that this rank updates
  for (const Piece& piece : shards.pieces(shard)) owned += piece.size() * 4;
  if (config.optim.ema > 0) memory.average = owned;
  if (rewinds(config)) {
    memory.copy = (1 + traits_of(inputs.optimizer).moments) * owned + memory.average;
  }
  if (config.checkpoint.every > 0 && config.checkpoint.async) {
    memory.checkpoint = checkpoint_bytes(config, inputs, rank, counts);
  }
  if (offload.parameters) {
    memory.state.parameters = 0;
    int64_t largest = 0;
    for (size_t u = 0; u < shards.units.size(); ++u) {
      const int unit = static_cast<int>(u);
      largest = std::max(
          largest, shards.owned(unit, shard).size() + shards.owned(unit, shard, false).size());
    }
    memory.staging = (shards.options.prefetch + 2) * largest * 4;
  }
  if (offload.optimizer) {
    memory.state.optimizer = streamed_bytes(shards.owned_numel(shard), offload.parameters);
  }
  return memory;
}

RankMemory planned_memory(const TrainConfig& config, const ParamTable& table, int ranks) {
  const StepInputs inputs = step_inputs_of(config, table, ranks);
  RankMemory most;
  for (int rank = 0; rank < ranks; ++rank) {
    const RankMemory memory = planned_memory(config, inputs, rank);
    if (memory.total() > most.total()) most = memory;
  }
  return most;
}

std::string settings_within(const TrainConfig& config, const ParamTable& table, int ranks,
                            int64_t limit) {
  std::vector<Change> changes;
  add_changes(config, ranks, changes);
  for (Change& change : changes) change.bytes = planned_memory(change.config, table, ranks).total();
  const int64_t needed = planned_memory(config, table, ranks).total();
  std::string text =
      base::str("By the plan a rank of this run needs ", base::bytes_text(needed),
                activation_peak(config) > 0 ? "." : ", and activations, which it does not know.");
  const auto cheaper = [](const Change& a, const Change& b) {
    return std::pair(a.cost, a.bytes) < std::pair(b.cost, b.bytes);
  };
  std::stable_sort(changes.begin(), changes.end(), cheaper);
  int told = 0;
  for (const Change& change : changes) {
    if (with_margin(change.bytes) > limit || told == 3) continue;
    text += base::str(told == 0 ? " These fit:" : "", "\n    ", change.text, " (",
                      base::bytes_text(change.bytes), change.other_bits ? ", other bits)" : ")");
    ++told;
  }
  if (told > 0) return text;
  const auto least =
      std::min_element(changes.begin(), changes.end(),
                       [](const Change& a, const Change& b) { return a.bytes < b.bytes; });
  if (least == changes.end() || least->bytes >= needed) {
    // Of a model that is cut or shared, the form of activations is not known.
    return text +
           (activation_peak(config) > 0
                ? " No setting needs less. More ranks need less each, and so does a smaller model."
                : " What it knows needs no less with another setting; activations do: --set "
                  "memory.recompute=block, or a smaller data.micro_batch.");
  }
  return text + base::str(" Nothing that can be set fits; the least is ", least->text, " with ",
                          base::bytes_text(least->bytes), ". More ranks need less each.");
}

}  // namespace lockstep::plan
