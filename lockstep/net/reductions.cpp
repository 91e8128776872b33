// All-reduce and reduce-scatter: rank r reads its slice of every term and stores the sum.
#include <algorithm>
#include <cstring>

#include "lockstep/base/hash.h"
#include "lockstep/base/str.h"
#include "lockstep/net/group_core.h"
#include "lockstep/net/plan_runner.h"
#include "lockstep/net/reduce_kernels.h"
#include "lockstep/net/staging.h"

namespace lockstep::net {
namespace {

constexpr size_t kRecipes = 8;

SumRecipe make_recipe(int leaves, std::vector<std::vector<plan::LeafRange>> terms_by_rank) {
  SumRecipe recipe;
  recipe.leaves = leaves;
  const plan::SumPlan plan = plan::plan_sum(leaves, terms_by_rank);
  for (const plan::TermHolder& term : plan.terms) {
    const auto& held = terms_by_rank[static_cast<size_t>(term.rank)];
    const auto index = std::find(held.begin(), held.end(), term.leaves) - held.begin();
    recipe.sources.push_back({term.rank, static_cast<int>(index)});
  }
  recipe.additions = plan.additions;
  recipe.terms_by_rank = std::move(terms_by_rank);
  return recipe;
}

}  // namespace

char* Group::Impl::announce_terms(Descriptor& mine, std::span<const Term> terms, int leaves,
                                  int64_t bytes) {
  const auto num_terms = static_cast<int64_t>(terms.size());
  mine.items = leaves == 0 ? 0 : static_cast<int32_t>(num_terms);
  const int64_t total = num_terms * bytes;
  bool reachable = true;
  for (const Term& term : terms) reachable &= address_of(term.data, bytes) != kNotReachable;

  char* copies = nullptr;
  if (leaves == 0 && total <= kFewBytes) {
    mine.inlined = kInFew;
    copies = mine.few.data();
  } else if (total <= plan::kInlineBytes) {
    copies = mine.payload.data();
  } else {
    mine.inlined = 0;
    if (!reachable && total <= kBounceBytes) copies = bounce(total);
  }
  if (copies != nullptr) {
    for (int64_t k = 0; k < num_terms && bytes > 0; ++k) {
      std::memcpy(copies + k * bytes, terms[k].data, static_cast<size_t>(bytes));
    }
  }
  const auto address = [&](int64_t k) {
    return copies != nullptr ? address_of(copies + k * bytes, bytes)
                             : address_of(terms[k].data, bytes);
  };
  if (leaves == 0) {
    mine.in = address(0);
  } else {
    auto* list = static_cast<TermEntry*>(
        list_room(mine, num_terms * static_cast<int64_t>(sizeof(TermEntry))));
    for (int64_t k = 0; k < num_terms; ++k) {
      list[k] = {terms[k].leaves.lo, terms[k].leaves.hi, address(k)};
    }
    // `in` says whether all are in reach; the list says where.
    mine.in = reachable || copies != nullptr ? 0 : kNotReachable;
  }
  return mine.inlined ? nullptr : copies;
}

void Group::Impl::announce_leaves(Descriptor& mine, std::span<const Term> terms, int leaves) {
  mine.inlined = 0;
  if (leaves == 0) return;
  mine.items = static_cast<int32_t>(terms.size());
  auto* list = static_cast<TermEntry*>(
      list_room(mine, std::ssize(terms) * static_cast<int64_t>(sizeof(TermEntry))));
  for (const Term& term : terms) *list++ = {term.leaves.lo, term.leaves.hi, kNotReachable};
}

const SumRecipe& Group::Impl::recipe_for_call(int leaves) {
  if (leaves == 0) return by_rank;
  const auto same = [&](const SumRecipe& recipe) {
    if (recipe.leaves != leaves) return false;
    for (int p = 0; p < size(); ++p) {
      const Descriptor& d = came_with(p);
      const auto& ranges = recipe.terms_by_rank[p];
      if (static_cast<int>(ranges.size()) != d.items) return false;
      const auto* list = reinterpret_cast<const TermEntry*>(at(d.list));
      for (int k = 0; k < d.items; ++k) {
        if (ranges[k].lo != list[k].lo || ranges[k].hi != list[k].hi) return false;
      }
    }
    return true;
  };
  for (const SumRecipe& recipe : recipes) {
    if (same(recipe)) return recipe;
  }
  std::vector<std::vector<plan::LeafRange>> terms_by_rank(static_cast<size_t>(size()));
  for (int p = 0; p < size(); ++p) {
    const Descriptor& d = came_with(p);
    const auto* list = reinterpret_cast<const TermEntry*>(at(d.list));
    for (int k = 0; k < d.items; ++k) terms_by_rank[p].push_back({list[k].lo, list[k].hi});
  }
  SumRecipe made = make_recipe(leaves, std::move(terms_by_rank));
  if (recipes.size() < kRecipes) {
    recipes.push_back(std::move(made));
    return recipes.back();
  }
  next_recipe = (next_recipe + 1) % kRecipes;
  return recipes[next_recipe] = std::move(made);
}

const char* Group::Impl::term_of(const SumRecipe::Source& source, std::span<const Term> mine,
                                 int leaves, int64_t bytes) const {
  if (source.rank == rank) return static_cast<const char*>(mine[source.index].data);
  const Descriptor& d = came_with(source.rank);
  if (d.inlined) return d.inline_data() + source.index * bytes;
  if (d.in == kNotReachable) return nullptr;
  return at(leaves == 0 ? d.in
                        : reinterpret_cast<const TermEntry*>(at(d.list))[source.index].address);
}

int64_t Group::Impl::find_terms(const SumRecipe& recipe, std::span<const Term> mine, int leaves,
                                int64_t bytes) {
  term_pointers.resize(recipe.sources.size());
  int64_t elsewhere = 0;
  for (size_t t = 0; t < recipe.sources.size(); ++t) {
    term_pointers[t] = term_of(recipe.sources[t], mine, leaves, bytes);
    if (recipe.sources[t].rank != rank) ++elsewhere;
  }
  return elsewhere;
}

void Group::Impl::reduce_to_all(std::span<const Term> terms, int leaves, void* result,
                                int64_t count, DType type, ReduceOp op) {
  Call call(*this, Operation::all_reduce);
  const int64_t width = width_of(type);
  const int64_t bytes = count * width;
  const plan::Algorithm algorithm = algorithm_for(plan::Collective::all_reduce, bytes);
  Descriptor& mine = prepare({.operation = Operation::all_reduce,
                              .count = count,
                              .type = type,
                              .reduce_op = op,
                              .algorithm = algorithm,
                              .leaves = leaves});
  if (is_plan(algorithm)) {
    announce_leaves(mine, terms, leaves);
    meet(mine);
    runner().all_reduce(algorithm, terms, recipe_for_call(leaves), result, count, type, op,
                        call.entry());
    return;
  }
  char* copies = announce_terms(mine, terms, leaves, bytes);
  mine.out = address_of(result, bytes);
  if (mine.out == kNotReachable && bytes <= kBounceBytes) {
    // Peers store the result where this rank's first term was copied, or would have been.
    if (copies == nullptr) copies = bounce(bytes);
    mine.out = address_of(copies, bytes);
  }
  const bool result_is_copied = mine.out != address_of(result, bytes);
  meet(mine);

  const SumRecipe& recipe = recipe_for_call(leaves);
  const int64_t elsewhere = find_terms(recipe, terms, leaves, bytes);
  if (everyone_inlined()) {
    reduce(type, op, term_pointers, recipe.additions, std::span(&result, 1), count);
    call.entry().bytes += elsewhere * bytes;
    return;
  }
  expect_peers_memory();
  bool in_reach = everyone_reachable();
  for (int p = 0; p < size(); ++p) in_reach &= came_with(p).out != kNotReachable;
  if (!in_reach) {
    staged_reduce_to_all(*this, recipe, terms, term_pointers, result, count, type, op,
                         call.entry());
    return;
  }
  const auto slice = plan::slice_of(count, size(), rank);
  for (const void*& term : term_pointers) term = static_cast<const char*>(term) + slice.lo * width;
  result_pointers.resize(static_cast<size_t>(size()));
  for (int p = 0; p < size(); ++p) {
    char* out = p == rank ? static_cast<char*>(result) : at(came_with(p).out);
    result_pointers[p] = out + slice.lo * width;
  }
  reduce(type, op, term_pointers, recipe.additions, result_pointers, slice.size());
  call.entry().bytes += (elsewhere + size() - 1) * slice.size() * width;
  step();
  if (result_is_copied) {
    // Peers stored their slices in the copy; this rank's own is in place.
    const int64_t tail = slice.hi * width;
    std::memcpy(result, copies, static_cast<size_t>(slice.lo * width));
    std::memcpy(static_cast<char*>(result) + tail, copies + tail,
                static_cast<size_t>(bytes - tail));
  }
}

void Group::Impl::reduce_to_owners(std::span<const Term> terms, int leaves, void* out,
                                   std::span<const int64_t> counts, DType type, ReduceOp op) {
  Call call(*this, Operation::reduce_scatter);
  const int64_t width = width_of(type);
  int64_t total = 0;
  int64_t before = 0;
  uint64_t hash = 0;
  for (int p = 0; p < size(); ++p) {
    if (p < rank) before += counts[p];
    total += counts[p];
    hash = base::mix64(hash ^ static_cast<uint64_t>(counts[p]));
  }
  const int64_t bytes = total * width;
  const plan::Algorithm algorithm = algorithm_for(plan::Collective::reduce_scatter, bytes);
  Descriptor& mine = prepare({.operation = Operation::reduce_scatter,
                              .count = total,
                              .type = type,
                              .reduce_op = op,
                              .algorithm = algorithm,
                              .counts_hash = hash,
                              .leaves = leaves});
  if (is_plan(algorithm)) {
    announce_leaves(mine, terms, leaves);
    meet(mine);
    runner().reduce_scatter(algorithm, terms, recipe_for_call(leaves), out, counts, type, op,
                            call.entry());
    return;
  }
  announce_terms(mine, terms, leaves, bytes);
  meet(mine);

  const SumRecipe& recipe = recipe_for_call(leaves);
  const int64_t elsewhere = find_terms(recipe, terms, leaves, bytes);
  expect_peers_memory();
  if (!everyone_reachable()) {
    staged_reduce_to_owners(*this, recipe, terms, term_pointers, out, counts, type, op,
                            call.entry());
    return;
  }
  for (const void*& term : term_pointers) term = static_cast<const char*>(term) + before * width;
  reduce(type, op, term_pointers, recipe.additions, std::span(&out, 1), counts[rank]);
  call.entry().bytes += elsewhere * counts[rank] * width;
  if (!everyone_inlined()) step();
}

}  // namespace lockstep::net
