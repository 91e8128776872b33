#include "lockstep/train/detail/sharded_module.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <numeric>

#include "lockstep/base/str.h"
#include "lockstep/train/detail/agreement.h"

namespace lockstep::detail {
namespace {

void check(const FullyShardOptions& options) {
  if (options.prefetch < 0) {
    throw UsageError(base::str("FullyShardOptions::prefetch is ", options.prefetch,
                               "; it is a number of units, 0 for none."));
  }
}

std::vector<std::string> describe(const FullyShardOptions& options) {
  return {
      base::str("reduction ", options.reduction == Reduction::mean ? "mean" : "sum"),
      base::str("prefetch ", options.prefetch),
      base::str("reshard_after_forward ", options.reshard_after_forward ? "true" : "false"),
      base::str("unused parameters ",
                options.unused == UnusedParameters::refuse ? "refused" : "zero"),
  };
}

void check(const NamedTensor& parameter) {
  const at::Tensor& tensor = parameter.tensor;
  if (torch_inside::is_watched(tensor)) {
    throw UsageError(base::str("parameter \"", parameter.name,
                               "\" is divided already.\n  Call fully_shard once, on the outermost "
                               "module; its policy says what is gathered together."));
  }
  if (tensor.is_sparse() || !tensor.device().is_cpu() || tensor.scalar_type() != at::kFloat) {
    throw UsageError(base::str("parameter \"", parameter.name, "\" is ", tensor.toString(),
                               "; fully_shard takes dense float32 on the CPU."));
  }
  if (!tensor.is_leaf()) {
    throw UsageError(base::str("parameter \"", parameter.name,
                               "\" is the result of an operation, so no gradient reaches it.\n  "
                               "Register a leaf tensor: value.detach()."));
  }
}

/// Tensors that share memory are trained together; divided, they would be two.
void check_apart(const std::vector<NamedTensor>& parameters) {
  std::map<const void*, std::string> of_storage;
  for (const auto& [name, tensor] : parameters) {
    if (tensor.numel() == 0) continue;
    const auto [first, is_new] = of_storage.emplace(tensor.storage().unsafeGetStorageImpl(), name);
    if (is_new) continue;
    throw UsageError(
        base::str("parameters \"", first->second, "\" and \"", name,
                  "\" are two tensors on the same memory.\n  Register one tensor under "
                  "both paths, or give each its own: value.clone()."));
  }
}

uint32_t version_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->version_counter().current_version();
}

plan::LeafRange all_ranks(const ProcessGroup& group) { return {0, group.size()}; }

}  // namespace

// ---- set-up ----

ShardedModule::ShardedModule(std::shared_ptr<torch::nn::Module> whole_module,
                             std::shared_ptr<ProcessGroup> ranks, const FullyShardOptions& choices)
    : module(std::move(whole_module)), group(std::move(ranks)), options(choices) {
  check(options);
  read_parameters();
  compare_ranks();
  take_from(*group, 0, parameters);
  take_from(*group, 0, buffers_of(*module));
  std::vector<int> everyone(static_cast<size_t>(group->size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  gathering = group->subgroup(everyone, "gather");
  reducing = group->subgroup(everyone, "shard");
  plan_layout();
  take_over();
  make_shards();
  make_gradients();
}

/// Each parameter once, matrices first: so they lie together in every unit.
void ShardedModule::read_parameters() {
  parameters = parameters_of(*module);
  for (const NamedTensor& parameter : parameters) check(parameter);
  check_apart(parameters);
  std::stable_partition(parameters.begin(), parameters.end(),
                        [](const NamedTensor& named) { return named.tensor.dim() >= 2; });
  std::map<const void*, int> index;
  for (const NamedTensor& named : parameters) {
    index.emplace(named.tensor.unsafeGetTensorImpl(), static_cast<int>(index.size()));
  }
  for (const auto& item : module->named_parameters(/*recurse=*/true)) {
    if (item.value().defined()) {
      by_path[item.key()] = index.at(item.value().unsafeGetTensorImpl());
    }
  }
}

void ShardedModule::compare_ranks() {
  const auto unit_of = options.unit_of ? options.unit_of : [](const std::string& path) {
    return plan::unit_of(path);
  };
  std::vector<plan::ParamDeclaration> declared;
  for (const auto& [name, tensor] : parameters) {
    declared.push_back({.name = name,
                        .shape = tensor.sizes().vec(),
                        .trainable = tensor.requires_grad(),
                        .init = {}});
  }
  table = plan::make_param_table(declared, {});
  std::vector<std::string> units_of_paths;
  for (const auto& [path, param] : by_path) {
    const std::string unit = unit_of(path);
    std::optional<std::string>& of = table.params[static_cast<size_t>(param)].unit;
    of = of.value_or(unit) == unit ? unit : std::string();
    units_of_paths.push_back(base::str("\"", path, "\" in unit \"", unit, "\""));
  }
  require_same_lines(*group, "the options of fully_shard", describe(options));
  require_same_lines(*group, "the module's parameters and buffers", lockstep::describe(*module));
  require_same_lines(*group, "the units of the policy", units_of_paths);
}

void ShardedModule::plan_layout() {
  buckets = plan::plan_unit_buckets(table);
  layout = plan::plan_shards(
      table, buckets,
      {.stage = plan::Shard::zero3, .ranks = group->size(), .prefetch = options.prefetch});
  pieces = layout.pieces(group->rank());
}

/// This rank's pieces of the values are kept; the module's tensors stand for gathered ones.
void ShardedModule::take_over() {
  units = std::make_unique<state::GatheredUnits>(layout, *gathering);
  const int rank = group->rank();
  for (const bool trained : {true, false}) {
    for (size_t u = 0; u < layout.units.size(); ++u) {
      const int unit = static_cast<int>(u);
      // Padding too: an optimizer goes over it.
      std::fill_n(units->shard(unit, trained), layout.owned(unit, rank, trained).size(), 0.0f);
    }
    for (const plan::Piece& piece : layout.pieces(rank, trained)) {
      const at::Tensor values =
          parameters[static_cast<size_t>(piece.param)].tensor.detach().contiguous();
      std::copy_n(values.data_ptr<float>() + piece.lo, piece.size(),
                  units->shard(piece.unit, trained) + piece.in_unit -
                      layout.owned(piece.unit, rank, trained).lo);
    }
  }
  for (size_t p = 0; p < parameters.size(); ++p) {
    // The tensor keeps its identity (hooks, registration); only its storage changes.
    parameters[p].tensor.set_data(units->parameter(static_cast<int>(p), table.params[p].shape));
  }
  remember_versions();
  flow = std::make_unique<UnitFlow>(
      layout, *units, *gathering,
      UnitFlow::Options{.prefetch = options.prefetch,
                        .reshard_after_forward = options.reshard_after_forward},
      [this](int unit) { require_unwritten(unit); },
      [this] {
        // What graphs have saved of them is old: autograd refuses it.
        for (const NamedTensor& named : parameters) {
          named.tensor.unsafeGetTensorImpl()->bump_version();
        }
        remember_versions();
      });
}

void ShardedModule::make_shards() {
  if (buckets.buckets.empty()) return;
  writes = std::make_unique<torch_inside::WatchedWrites>(units->shard_tensor(0),
                                                         [this] { flow->shards_are_written(); });
  for (size_t b = 0; b < buckets.buckets.size(); ++b) {
    const int unit = static_cast<int>(b);
    const plan::ShardUnit& of = layout.units[b];
    int64_t matrices_end = 0;
    for (const int param : buckets.buckets[b].params) {
      if (!table.params[static_cast<size_t>(param)].decay) break;
      const plan::UnitSlot& slot = layout.slots[static_cast<size_t>(param)];
      matrices_end = slot.offset + (slot.numel + plan::kSlotAlignment - 1) / plan::kSlotAlignment *
                                       plan::kSlotAlignment;
    }
    const plan::ElementRange own = layout.owned(unit, group->rank());
    for (const bool matrices : {true, false}) {
      const int64_t begin = matrices ? 0 : matrices_end;
      const int64_t end = matrices ? matrices_end : of.trained;
      if (begin == end) continue;  // on every rank
      const int64_t lo = std::clamp(own.lo, begin, end);
      const int64_t hi = std::clamp(own.hi, lo, end);
      const int64_t offset = std::clamp(lo - own.lo, int64_t{0}, own.size());
      places.push_back({.unit = unit, .offset = offset, .numel = hi - lo});
      at::Tensor values = writes->watched(units->shard_tensor(unit).narrow(0, offset, hi - lo));
      values.requires_grad_(true);
      shards.push_back({.unit = of.name, .matrices = matrices, .values = std::move(values)});
    }
  }
}

void ShardedModule::make_gradients() {
  std::vector<std::vector<at::Tensor>> uses(parameters.size());
  for (size_t p = 0; p < parameters.size(); ++p) {
    if (table.params[p].trainable) uses[p].push_back(parameters[p].tensor);
  }
  const int ranks = group->size();
  const plan::LeafSchedule leaves =
      plan::plan_leaves(ranks, ranks, plan::LeafAssignment::round_robin);
  grads = std::make_unique<state::GradStore>(
      table, buckets, uses, *reducing, leaves,
      state::GradStoreOptions{.arrivals = state::Arrivals::Promise::guessed,
                              .shards = &layout,
                              .rounds = plan::plan_leaf_rounds(leaves, all_ranks(*group), ranks),
                              .owner = "the module that fully_shard has divided",
                              .handle = "h"});
  grads->on_bucket_ready([this](int bucket) { reduce_ready(bucket); });
  norm = std::make_unique<ShardNorm>(table, layout, reducing.get());
}

// ---- values ----

void ShardedModule::remember_versions() {
  versions.clear();
  for (const NamedTensor& named : parameters) versions.push_back(version_of(named.tensor));
}

/// What was written to gathered values is lost with them.
void ShardedModule::require_unwritten(int unit) {
  for (const int param : layout.units[static_cast<size_t>(unit)].params) {
    const auto p = static_cast<size_t>(param);
    if (version_of(parameters[p].tensor) == versions[p]) continue;
    versions[p] = version_of(parameters[p].tensor);
    throw UsageError(base::str(
        "[rank ", group->rank(), " of ", group->size(), "] parameter \"", parameters[p].name,
        "\" was written to after fully_shard has divided the module: only gathered values have "
        "changed, and they are freed.\n  Write to h.parameters(), give those to the optimizer, or "
        "set values before fully_shard."));
  }
}

at::Tensor ShardedModule::whole(const std::string& path) {
  const auto found = by_path.find(path);
  if (found == by_path.end()) {
    throw UsageError(base::str("the module has no parameter \"", path, "\"."));
  }
  if (state == State::running) throw UsageError("FullyShard::whole inside a backward.");
  const auto p = static_cast<size_t>(found->second);
  const int unit = layout.slots[p].unit;
  flow->drop_old();
  flow->release_all();
  flow->fetch(unit);
  at::Tensor values = at::empty(table.params[p].shape, at::kFloat);
  std::copy_n(units->gathered(found->second), values.numel(), values.data_ptr<float>());
  flow->release_all();
  return values;
}

// ---- a backward ----

void ShardedModule::backward(const at::Tensor& loss, const at::Tensor& gradient,
                             bool retain_graph) {
  if (state == State::running) {
    throw UsageError("FullyShard::backward was called from within a backward of it.");
  }
  require_same_trained();
  const bool last = !local;
  state = State::running;
  try {
    flow->begin_backward();
    grads->begin_backward({.leaf = group->rank(), .fresh = fresh, .clear = true, .last = last});
    fresh = false;
    if (last) begin_reductions();
    loss.backward(gradient, retain_graph, /*create_graph=*/false);
    flow->end_backward();
    grads->end_backward();
    if (last) finish();
    state = State::closed;
  } catch (const AgreedRefusal&) {
    state = State::closed;
    throw;
  } catch (const std::exception& error) {
    // Peers wait for units that this rank will not bring.
    state = State::closed;
    grads->give_up_backward();
    group->abort(base::str("backward failed: ", error.what()));
    throw;
  }
}

void ShardedModule::require_same_trained() const {
  for (size_t p = 0; p < parameters.size(); ++p) {
    if (parameters[p].tensor.requires_grad() == table.params[p].trainable) continue;
    throw UsageError(base::str("[rank ", group->rank(), " of ", group->size(), "] parameter \"",
                               parameters[p].name, "\" was ",
                               table.params[p].trainable ? "frozen" : "unfrozen",
                               " after fully_shard has divided the module.\n  Choose what is "
                               "trained before that."));
  }
}

void ShardedModule::begin_reductions() {
  keep_gradients_apart();
  sequence.clear();
  for (const int unit : flow->last_gathered_first()) {
    if (layout.units[static_cast<size_t>(unit)].bucket >= 0) sequence.push_back(unit);
  }
  ready.assign(buckets.buckets.size(), false);
  next = 0;
}

/// Gradients of a step before are to be added to: they leave the place of those to come.
void ShardedModule::keep_gradients_apart() {
  for (size_t s = 0; s < shards.size(); ++s) {
    at::Tensor& grad = shards[s].values.mutable_grad();
    if (grad.defined() && grad.is_alias_of(grads->owned(places[s].unit))) grad = grad.clone();
  }
}

/// Called from within backward, and at its end.
void ShardedModule::reduce_ready(int bucket) {
  ready[static_cast<size_t>(bucket)] = true;
  const plan::LeafRange all = all_ranks(*group);
  for (; next < sequence.size() && ready[static_cast<size_t>(sequence[next])]; ++next) {
    const Work under_way = grads->reduce(sequence[next], all);
    ++reductions;
    if (next > 0) grads->settle(sequence[next - 1], all);
  }
}

void ShardedModule::finish() {
  if (!sequence.empty()) grads->settle(sequence.back(), all_ranks(*group));
  const at::NoGradGuard no_grad;
  if (options.reduction == Reduction::mean && group->size() > 1) {
    for (const int bucket : sequence) grads->owned(bucket).div_(group->size());
  }
  fresh = true;
  agree();
  hand_out();
}

/// Ranks that saw different graphs go the same way.
void ShardedModule::agree() {
  std::vector<std::string> unused;
  bool late = false;
  for (size_t p = 0; p < table.params.size(); ++p) {
    if (!table.params[p].trainable) continue;
    const int param = static_cast<int>(p);
    if (grads->absent(param)) unused.push_back(table.params[p].name);
    late |= grads->late(param).defined();
  }
  const bool refused = options.unused == UnusedParameters::refuse && !unused.empty();
  at::Tensor flags = at::tensor({int64_t{refused}, int64_t{late}}, at::kLong);
  reducing->all_reduce(flags, ReduceOp::max).wait();
  if (flags.data_ptr<int64_t>()[0] != 0) {
    refuse_unused(*reducing, unused,
                  "Freeze them (requires_grad_(false)) before fully_shard, or choose "
                  "FullyShardOptions{.unused = UnusedParameters::zero}.");
  }
  if (flags.data_ptr<int64_t>()[1] != 0) reduce_late();
}

/// Gradients that came after their unit had gone: they travel by themselves.
void ShardedModule::reduce_late() {
  const ReduceOp op = options.reduction == Reduction::mean ? ReduceOp::average : ReduceOp::sum;
  at::Tensor late = at::zeros({std::ssize(table.params)}, at::kByte);
  auto* const is_late = late.data_ptr<uint8_t>();
  for (size_t p = 0; p < table.params.size(); ++p) {
    is_late[p] = table.params[p].trainable && grads->late(static_cast<int>(p)).defined() ? 1 : 0;
  }
  reducing->all_reduce(late, ReduceOp::max).wait();
  for (size_t p = 0; p < table.params.size(); ++p) {
    if (is_late[p] == 0) continue;
    const at::Tensor mine = grads->late(static_cast<int>(p));
    const at::Tensor sum =
        mine.defined() ? mine.contiguous().clone() : at::zeros(table.params[p].shape, at::kFloat);
    reducing->all_reduce(sum, op).wait();
    for (const plan::Piece& piece : pieces) {
      if (piece.param != static_cast<int>(p)) continue;
      const int64_t lo = piece.in_unit - layout.owned(piece.unit, group->rank()).lo;
      grads->owned(piece.unit)
          .narrow(0, lo, piece.size())
          .add_(sum.view({-1}).narrow(0, piece.lo, piece.size()));
    }
  }
}

at::Tensor ShardedModule::slice_of(size_t shard) const {
  return grads->owned(places[shard].unit).narrow(0, places[shard].offset, places[shard].numel);
}

/// The gradients become the shards'. Padding between parameters has none.
void ShardedModule::hand_out() {
  for (const int bucket : sequence) {
    const plan::ElementRange own = layout.owned(bucket, group->rank());
    const at::Tensor slice = grads->owned(bucket);
    int64_t end = own.lo;
    for (const plan::Piece& piece : pieces) {
      if (piece.unit != bucket) continue;
      slice.narrow(0, end - own.lo, piece.in_unit - end).zero_();
      end = piece.in_unit + piece.size();
    }
    slice.narrow(0, end - own.lo, own.hi - end).zero_();
  }
  for (size_t s = 0; s < shards.size(); ++s) {
    at::Tensor& grad = shards[s].values.mutable_grad();
    if (grad.defined()) {
      grad.add_(slice_of(s));
    } else {
      grad = slice_of(s);
    }
  }
}

const float* ShardedModule::gradient(const plan::Piece& piece) const {
  const int64_t at = piece.in_unit - layout.owned(piece.unit, group->rank()).lo;
  for (size_t s = 0; s < shards.size(); ++s) {
    const Place& place = places[s];
    if (place.unit != piece.unit || at < place.offset || at >= place.offset + place.numel) continue;
    const at::Tensor& grad = shards[s].values.grad();
    return grad.defined() ? grad.data_ptr<float>() + at - place.offset : nullptr;
  }
  return nullptr;
}

}  // namespace lockstep::detail
