#include "lockstep/train/detail/replica_gradients.h"

#include <algorithm>

#include "lockstep/base/str.h"

namespace lockstep::detail {
namespace {

bool is_supported(at::ScalarType type) {
  return type == at::kFloat || type == at::kDouble || type == at::kBFloat16 || type == at::kHalf;
}

std::vector<std::string> describe(const DdpOptions& options) {
  return {base::str("reduction ", options.reduction == Reduction::mean ? "mean" : "sum"),
          base::str("unused parameters ",
                    options.unused == UnusedParameters::refuse ? "refused" : "zero"),
          base::str("buffers taken ",
                    options.buffers == BufferSync::every_step ? "every step" : "at the start"),
          base::str("static_graph ", options.static_graph ? "true" : "false"),
          base::str("bucket_bytes ", options.bucket_bytes),
          base::str("first_bucket_bytes ", options.first_bucket_bytes)};
}

void check(const DdpOptions& options) {
  for (const auto& [name, value] : {std::pair{"bucket_bytes", options.bucket_bytes},
                                    std::pair{"first_bucket_bytes", options.first_bucket_bytes}}) {
    if (value < 1) {
      throw UsageError(base::str("DdpOptions::", name, " is ", value, "; it must be positive."));
    }
  }
}

void check(const std::vector<NamedTensor>& parameters) {
  for (const auto& [name, tensor] : parameters) {
    if (tensor.is_sparse() || !tensor.device().is_cpu() || !is_supported(tensor.scalar_type())) {
      throw UsageError(base::str("parameter \"", name, "\" is ", tensor.toString(),
                                 "; DistributedDataParallel takes dense float32, float64, "
                                 "bfloat16 and float16 on the CPU."));
    }
    if (!tensor.is_leaf()) {
      throw UsageError(base::str("parameter \"", name,
                                 "\" is the result of an operation, so no gradient reaches it.\n  "
                                 "Register a leaf tensor: value.detach()."));
    }
  }
}

}  // namespace

// ---- set-up ----

ReplicaGradients::ReplicaGradients(std::shared_ptr<torch::nn::Module> replica,
                                   std::shared_ptr<ProcessGroup> ranks, const DdpOptions& choices)
    : module(std::move(replica)), group(std::move(ranks)), options(choices) {
  check(options);
  parameters = parameters_of(*module);
  buffers = buffers_of(*module);
  check(parameters);
  require_same_lines(*group, "the options of DistributedDataParallel", describe(options));
  require_same_lines(*group, "the module's parameters and buffers", lockstep::describe(*module));
  take_from(*group, 0, parameters);
  take_from(*group, 0, buffers);

  std::vector<at::ScalarType> types;
  for (const auto& [name, tensor] : parameters) {
    trained.push_back(tensor.requires_grad());
    const at::ScalarType type = tensor.scalar_type();
    if (tensor.requires_grad() && std::find(types.begin(), types.end(), type) == types.end()) {
      types.push_back(type);
    }
  }
  for (const at::ScalarType type : types) make_gradients(type);
  divisor = group->size();
}

void ReplicaGradients::make_gradients(at::ScalarType type) {
  auto made = std::make_unique<TypedGradients>();
  std::vector<plan::ParamDeclaration> declared;
  for (const auto& [name, tensor] : parameters) {
    if (!tensor.requires_grad() || tensor.scalar_type() != type) continue;
    declared.push_back(
        {.name = name, .shape = tensor.sizes().vec(), .trainable = true, .init = {}});
    made->uses.push_back({tensor});
  }
  made->table = plan::make_param_table(declared, {});
  made->buckets = plan::plan_buckets(made->table, options.first_bucket_bytes, options.bucket_bytes,
                                     static_cast<int64_t>(c10::elementSize(type)));
  made->store = std::make_unique<state::GradStore>(
      made->table, made->buckets, made->uses, *group,
      plan::plan_leaves(group->size(), group->size(), plan::LeafAssignment::contiguous),
      state::GradStoreOptions{.type = type, .arrivals = state::Arrivals::Promise::learned});
  made->store->on_bucket_ready(
      [this, raw = made.get()](int bucket) { reduce_ready(*raw, bucket); });
  for (size_t b = 0; b < made->buckets.buckets.size(); ++b) {
    places.push_back({.gradients = made.get(), .bucket = static_cast<int>(b)});
  }
  gradients.push_back(std::move(made));
}

// ---- a synchronized backward ----

void ReplicaGradients::open(bool last) {
  for (const auto& typed : gradients) {
    typed->store->begin_backward(
        {.leaf = group->rank(), .fresh = fresh, .clear = false, .last = last});
    if (holds_reduced) count_once(*typed);
  }
  fresh = false;
  holds_reduced = false;
  if (!last) return;
  next = 0;
  works.clear();
  for (BucketPlace& place : places) place.ready = false;
}

/// Gradients that are there were reduced already and are on every rank. In the reduction to come
/// they may count once.
void ReplicaGradients::count_once(TypedGradients& typed) const {
  const bool mean = options.reduction == Reduction::mean;
  if (mean && !joining) return;  // all ranks bring them, and the mean is theirs
  for (const auto& uses : typed.uses) {
    at::Tensor grad = uses[0].grad();
    if (!grad.defined()) continue;
    if (group->rank() != root) grad.zero_();
    if (group->rank() == root && mean) grad.mul_(divisor);
  }
}

void ReplicaGradients::reduce_ready(TypedGradients& typed, int bucket) {
  for (BucketPlace& place : places) {
    if (place.gradients == &typed && place.bucket == bucket) place.ready = true;
  }
  for (; next < places.size() && places[next].ready; ++next) {
    works.push_back(
        places[next].gradients->store->reduce_over_ranks(places[next].bucket, operation()));
    ++reductions;
  }
}

void ReplicaGradients::finish() {
  for (const auto& typed : gradients) typed->store->end_backward();
  for (size_t at = 0; at < works.size(); ++at) {
    works[at].wait();
    correct(places[at].gradients->store->bucket(places[at].bucket));
  }
  if (options.static_graph && usage_known) {
    require_promise_kept();
  } else {
    agree();
  }
  if (options.buffers == BufferSync::every_step) take_from(*group, root, buffers);
  usage_known = true;
  fresh = true;
  holds_reduced = true;
}

/// Ranks that saw different graphs go the same way.
void ReplicaGradients::agree() {
  const bool refused = options.unused == UnusedParameters::refuse && !unused().empty();
  at::Tensor flags = at::tensor({int64_t{refused}, int64_t{any_late()}}, at::kLong);
  group->all_reduce(flags, ReduceOp::max).wait();
  if (flags[0].item<int64_t>() != 0) refuse_unused();
  if (flags[1].item<int64_t>() != 0) reduce_late();
}

std::vector<std::string> ReplicaGradients::unused() const {
  std::vector<std::string> names;
  for (const auto& typed : gradients) {
    for (size_t p = 0; p < typed->table.params.size(); ++p) {
      if (typed->store->absent(static_cast<int>(p))) names.push_back(typed->table.params[p].name);
    }
  }
  return names;
}

bool ReplicaGradients::any_late() const {
  for (const auto& typed : gradients) {
    for (size_t p = 0; p < typed->table.params.size(); ++p) {
      if (typed->store->late(static_cast<int>(p)).defined()) return true;
    }
  }
  return false;
}

void ReplicaGradients::refuse_unused() {
  fresh = true;
  detail::refuse_unused(
      *group, unused(),
      "Freeze them (requires_grad_(false)) before the replicas are made, or choose "
      "DdpOptions{.unused = UnusedParameters::zero}.");
}

/// Gradients that came after their bucket had gone: they travel by themselves.
void ReplicaGradients::reduce_late() {
  for (const auto& typed : gradients) {
    const int count = static_cast<int>(typed->table.params.size());
    at::Tensor late = at::zeros({count}, at::kByte);
    for (int p = 0; p < count; ++p) late[p] = typed->store->late(p).defined() ? 1 : 0;
    group->all_reduce(late, ReduceOp::max).wait();
    for (int p = 0; p < count; ++p) {
      if (late[p].item<uint8_t>() == 0) continue;
      const at::Tensor mine = typed->store->late(p);
      at::Tensor sum = mine.defined() ? mine.contiguous().clone()
                                      : at::zeros_like(typed->store->gradient_tensor(p));
      group->all_reduce(sum, operation()).wait();
      correct(sum);
      typed->store->gradient_tensor(p).add_(sum);
    }
  }
}

void ReplicaGradients::require_promise_kept() {
  std::string broken;
  if (any_late()) broken = "a parameter gave more gradients than in the first backward";
  if (const auto names = unused(); options.unused == UnusedParameters::refuse && !names.empty()) {
    broken = base::str("parameter \"", names[0], "\" took no part in the loss");
  }
  if (!broken.empty()) {
    throw UsageError(base::str("[rank ", group->rank(), " of ", group->size(),
                               "] static_graph was promised, but ", broken,
                               ".\n  Leave static_graph false for graphs that change."));
  }
}

ReduceOp ReplicaGradients::operation() const {
  return options.reduction == Reduction::mean ? ReduceOp::average : ReduceOp::sum;
}

/// Where only some ranks have data, the average over all of them divides by too much.
void ReplicaGradients::correct(at::Tensor averaged) const {
  if (options.reduction == Reduction::sum || divisor == group->size()) return;
  averaged.mul_(group->size() / divisor);
}

void ReplicaGradients::require_same_trained() {
  for (size_t p = 0; p < parameters.size(); ++p) {
    if (parameters[p].tensor.requires_grad() == trained[p]) continue;
    throw UsageError(base::str("[rank ", group->rank(), " of ", group->size(), "] parameter \"",
                               parameters[p].name, "\" was ", trained[p] ? "frozen" : "unfrozen",
                               " after DistributedDataParallel was made.\n  Make it anew after "
                               "requires_grad_ has been changed."));
  }
}

void ReplicaGradients::take_part() {
  open(/*last=*/true);
  for (const auto& typed : gradients) {
    for (const auto& uses : typed->uses) {
      if (uses[0].grad().defined()) uses[0].mutable_grad().zero_();
    }
    typed->store->end_backward();
  }
  for (Work& work : works) work.wait();
  if (!options.static_graph || !usage_known) {
    at::Tensor flags = at::zeros({2}, at::kLong);
    group->all_reduce(flags, ReduceOp::max).wait();
    if (flags[0].item<int64_t>() != 0) {
      group->gather_text("");
      return;
    }
    if (flags[1].item<int64_t>() != 0) reduce_late();
  }
  if (options.buffers == BufferSync::every_step) take_from(*group, root, buffers);
  usage_known = true;
  fresh = true;
}

bool ReplicaGradients::exchange_live(bool mine) {
  at::Tensor live = at::zeros({group->size()}, at::kLong);
  group->all_gather(at::full({1}, int64_t{mine}, at::kLong), live).wait();
  int64_t count = 0;
  int lowest = -1;
  for (int rank = 0; rank < group->size(); ++rank) {
    if (live[rank].item<int64_t>() == 0) continue;
    ++count;
    if (lowest < 0) lowest = rank;
  }
  if (count == 0) return false;
  root = lowest;
  divisor = joining == JoinDivisor::live ? static_cast<double>(count) : group->size();
  return true;
}

}  // namespace lockstep::detail
