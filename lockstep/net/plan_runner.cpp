#include "lockstep/net/plan_runner.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "lockstep/base/str.h"
#include "lockstep/net/hosts_transport.h"
#include "lockstep/net/modelled_transport.h"
#include "lockstep/net/reduce_kernels.h"
#include "lockstep/net/region_transport.h"
#include "lockstep/net/wide_sums.h"

namespace lockstep::net {
namespace {

using plan::Algorithm;
using plan::Collective;

constexpr size_t kKept = 16;
// A chunk of a pipelined tree: long enough that its latency is small beside its bytes.
constexpr int64_t kChunkBytes = 512 * KiB;
constexpr int64_t kMostChunks = 32;

int chunks_for(Algorithm algorithm, int64_t bytes) {
  const bool pipelined = algorithm == Algorithm::binomial || algorithm == Algorithm::tree ||
                         algorithm == Algorithm::double_tree;
  return pipelined ? static_cast<int>(std::clamp<int64_t>(bytes / kChunkBytes, 1, kMostChunks)) : 1;
}

void copy(void* to, const void* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<size_t>(bytes));
}

/// What tells plans of other terms, or of other counts, apart.
std::vector<int64_t> shape_of(const SumRecipe& recipe, std::vector<int64_t> shape) {
  shape.push_back(recipe.leaves);
  for (const auto& held : recipe.terms_by_rank) {
    shape.push_back(std::ssize(held));
    for (const plan::LeafRange& leaves : held) {
      shape.push_back(leaves.lo);
      shape.push_back(leaves.hi);
    }
  }
  return shape;
}

bool is_short(DType type) { return type == DType::f16 || type == DType::bf16; }

}  // namespace

void Group::Impl::connect() {
  if (engine == nullptr || size() == 1) return;
  const Exchange exchange = [this](const std::string& mine) {
    return gather_text(Operation::gather_text, mine, 0);
  };
  try {
    // No two groups of a rank have the same lines of their first member at a time.
    const int id = seats[0].lines * region.ranks + members[0];
    std::unique_ptr<Transport> transport = engine->connect(members, rank, id, exchange);
    if (spans_hosts) {
      std::vector<bool> far(members.size());
      for (int p = 0; p < size(); ++p) far[static_cast<size_t>(p)] = is_remote(p);
      transport = std::make_unique<HostsTransport>(std::make_unique<RegionTransport>(*this),
                                                   std::move(transport), std::move(far));
    }
    plans = std::make_unique<PlanRunner>(*this, std::move(transport));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {  // of an engine's own library
    fail(base::str("engine ", engine->name(), " cannot connect the ranks: ", error.what()));
  }
}

PlanRunner& Group::Impl::runner() {
  if (!plans) {
    std::unique_ptr<Transport> transport = std::make_unique<RegionTransport>(*this);
    if (network != nullptr) {
      transport =
          std::make_unique<ModelledTransport>(std::move(transport), *network, members, rank);
    }
    plans = std::make_unique<PlanRunner>(*this, std::move(transport));
  }
  return *plans;
}

PlanRunner::PlanRunner(Group::Impl& group, std::unique_ptr<Transport> transport)
    : group_(group), transport_(std::move(transport)) {}

void PlanRunner::forget() {
  kept_.clear();
  next_kept_ = 0;
}

template <class Make>
const plan::RankSteps& PlanRunner::steps_for(Collective operation, Algorithm algorithm,
                                             std::vector<int64_t> shape, Make&& make) {
  for (const Kept& kept : kept_) {
    if (kept.operation == operation && kept.algorithm == algorithm && kept.shape == shape) {
      return kept.steps;
    }
  }
  plan::CollectivePlan plan = make();
  Kept made{operation, algorithm, std::move(shape), std::move(plan.by_rank[group_.rank])};
  if (kept_.size() < kKept) {
    kept_.push_back(std::move(made));
    return kept_.back().steps;
  }
  next_kept_ = (next_kept_ + 1) % kKept;
  kept_[next_kept_] = std::move(made);
  return kept_[next_kept_].steps;
}

void PlanRunner::run(const plan::RankSteps& steps, const Memory& memory, LedgerEntry& entry) {
  const int64_t width = width_of(memory.type);
  char* const scratch =
      steps.scratch > 0 ? scratch_.at_least(group_, steps.scratch * width) : nullptr;
  const auto at = [&](const plan::Place& place) {
    char* base = place.buffer == plan::kResult ? memory.result
                 : place.buffer == plan::kScratch
                     ? scratch
                     // Only read: no plan receives into a term.
                     : static_cast<char*>(
                           const_cast<void*>(memory.terms[place.buffer - plan::kFirstTerm].data));
    return base + place.range.lo * width;
  };
  const int64_t received_before = transport_->bytes_received();
  const int64_t across_before = transport_->bytes_across();
  for (const plan::CollectiveRound& round : steps.rounds) {
    group_.pass(Point::round);
    for (const plan::Transfer& transfer : round.transfers) {
      const int64_t bytes = transfer.place.range.size() * width;
      if (transfer.direction == plan::Direction::send) {
        transport_->send(transfer.peer, at(transfer.place), bytes);
      } else {
        transport_->receive(transfer.peer, at(transfer.place), bytes);
      }
    }
    if (!round.transfers.empty()) finish_round();
    for (const plan::LocalStep& step : round.local) {
      sources_.clear();
      for (const plan::Place& source : step.sources) sources_.push_back(at(source));
      void* into = at(step.into);
      const int64_t count = step.into.range.size();
      if (step.sources.size() == 1) {
        copy(into, sources_[0], count * width);
      } else {
        reduce(memory.type, memory.op, sources_, step.additions, std::span(&into, 1), count);
      }
    }
  }
  entry.bytes += transport_->bytes_received() - received_before;
  entry.across += transport_->bytes_across() - across_before;
}

void PlanRunner::finish_round() {
  try {
    group_.pass(Point::round_started);
    group_.wait_for(*transport_);
  } catch (...) {
    transport_->abandon();
    throw;
  }
}

/// Of one term a rank, which is in `data`.
void PlanRunner::reduce_in_place(const plan::RankSteps& steps, Algorithm algorithm, char* data,
                                 int64_t count, DType type, ReduceOp op, LedgerEntry& entry) {
  // Direct adds all terms of an element at once: it rounds and divides there.
  const bool adds_partly = algorithm != Algorithm::direct;
  const bool sums = op == ReduceOp::sum || op == ReduceOp::average;
  if (!adds_partly || !sums || (op == ReduceOp::sum && !is_short(type))) {
    run(steps, {.result = data, .terms = {}, .type = type, .op = op}, entry);
    return;
  }
  char* sum = data;
  DType wide = type;
  if (is_short(type)) {
    wide = DType::f32;
    sum = wide_.at_least(group_, std::max<int64_t>(1, count) * width_of(wide));
    widen(type, data, reinterpret_cast<float*>(sum), count);
  }
  run(steps, {.result = sum, .terms = {}, .type = wide, .op = ReduceOp::sum}, entry);
  const int divisor = op == ReduceOp::average ? group_.size() : 1;
  divide(wide, sum, divisor, type, data, count);
}

/// One term each, added over the ranks in the order in which a tree over the ranks would be.
bool PlanRunner::ranks_are_leaves(const SumRecipe& recipe) const {
  if (std::ssize(recipe.sources) != group_.size()) return false;
  for (int r = 0; r < group_.size(); ++r) {
    if (recipe.sources[r].rank != r) return false;
  }
  return recipe.additions == group_.by_rank.additions;
}

void PlanRunner::all_reduce(Algorithm algorithm, std::span<const Term> terms,
                            const SumRecipe& recipe, void* result, int64_t count, DType type,
                            ReduceOp op, LedgerEntry& entry) {
  const int64_t bytes = count * width_of(type);
  char* const to = static_cast<char*>(result);
  if (recipe.sources.empty()) {
    if (bytes > 0) std::memset(to, 0, static_cast<size_t>(bytes));
    return;
  }
  if (terms.size() == 1) copy(to, terms[0].data, bytes);
  if (ranks_are_leaves(recipe)) {
    const int chunks = chunks_for(algorithm, bytes);
    const auto& steps = steps_for(Collective::all_reduce, algorithm, {count, chunks}, [&] {
      return algorithm == Algorithm::hierarchical
                 ? plan::plan_hierarchical_all_reduce(group_.hosts(), count)
                 : plan::plan_all_reduce(algorithm, group_.size(), count, chunks);
    });
    reduce_in_place(steps, algorithm, to, count, type, op, entry);
    return;
  }
  const auto& steps =
      steps_for(Collective::all_reduce, Algorithm::direct, shape_of(recipe, {count}), [&] {
        return plan::plan_all_reduce(plan::plan_sum(recipe.leaves, recipe.terms_by_rank), count);
      });
  run(steps, {.result = to, .terms = terms, .type = type, .op = op}, entry);
}

void PlanRunner::reduce_scatter(Algorithm algorithm, std::span<const Term> terms,
                                const SumRecipe& recipe, void* out, std::span<const int64_t> counts,
                                DType type, ReduceOp op, LedgerEntry& entry) {
  const int64_t width = width_of(type);
  const std::vector<int64_t> slices(counts.begin(), counts.end());
  const int64_t total = std::accumulate(slices.begin(), slices.end(), int64_t{0});
  const int64_t before =
      std::accumulate(slices.begin(), slices.begin() + group_.rank, int64_t{0}) * width;
  const int64_t own = slices[group_.rank] * width;
  if (recipe.sources.empty()) {
    if (own > 0) std::memset(out, 0, static_cast<size_t>(own));
    return;
  }
  char* const work = work_.at_least(group_, std::max<int64_t>(1, total) * width);
  if (terms.size() == 1) copy(work, terms[0].data, total * width);
  if (ranks_are_leaves(recipe)) {
    const auto& steps = steps_for(Collective::reduce_scatter, algorithm, slices,
                                  [&] { return plan::plan_reduce_scatter(algorithm, slices); });
    reduce_in_place(steps, algorithm, work, total, type, op, entry);
  } else {
    const auto& steps =
        steps_for(Collective::reduce_scatter, Algorithm::direct, shape_of(recipe, slices), [&] {
          return plan::plan_reduce_scatter(plan::plan_sum(recipe.leaves, recipe.terms_by_rank),
                                           slices);
        });
    run(steps, {.result = work, .terms = terms, .type = type, .op = op}, entry);
  }
  copy(out, work + before, own);
}

void PlanRunner::all_gather(Algorithm algorithm, const void* in, void* out,
                            std::span<const int64_t> counts, DType type, LedgerEntry& entry) {
  const int64_t width = width_of(type);
  const int64_t before =
      std::accumulate(counts.begin(), counts.begin() + group_.rank, int64_t{0}) * width;
  const std::vector<int64_t> shape(counts.begin(), counts.end());
  const auto& steps = steps_for(Collective::all_gather, algorithm, shape,
                                [&] { return plan::plan_all_gather(algorithm, shape); });
  char* const to = static_cast<char*>(out);
  if (counts[group_.rank] > 0 && in != to + before) {
    std::memmove(to + before, in, static_cast<size_t>(counts[group_.rank] * width));
  }
  run(steps, {.result = to, .terms = {}, .type = type}, entry);
}

void PlanRunner::broadcast(Algorithm algorithm, void* data, int64_t count, DType type, int root,
                           LedgerEntry& entry) {
  const int chunks = chunks_for(algorithm, count * width_of(type));
  const auto& steps = steps_for(Collective::broadcast, algorithm, {count, root, chunks}, [&] {
    return plan::plan_broadcast(algorithm, group_.size(), root, count, chunks);
  });
  run(steps, {.result = static_cast<char*>(data), .terms = {}, .type = type}, entry);
}

void PlanRunner::all_to_all(Algorithm algorithm, const void* in, void* out,
                            const std::vector<std::vector<int64_t>>& splits, DType type,
                            LedgerEntry& entry) {
  std::vector<int64_t> shape;
  for (const auto& row : splits) shape.insert(shape.end(), row.begin(), row.end());
  const auto is_first = [&](int64_t count) { return count == shape[0]; };
  const bool equal = std::all_of(shape.begin(), shape.end(), is_first);
  if (algorithm == Algorithm::bruck && !equal) algorithm = Algorithm::direct;
  const auto& steps = steps_for(Collective::all_to_all, algorithm, std::move(shape),
                                [&] { return plan::plan_all_to_all(algorithm, splits); });
  const Term term{{}, in};
  run(steps, {.result = static_cast<char*>(out), .terms = std::span(&term, 1), .type = type},
      entry);
}

}  // namespace lockstep::net
