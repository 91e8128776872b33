#include "lockstep/plan/detail/collective_builder.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::plan::detail {

CollectiveBuilder::CollectiveBuilder(Collective operation, Algorithm algorithm, SumPlan terms)
    : plan_{operation, algorithm, std::move(terms), {}} {
  plan_.by_rank.resize(static_cast<size_t>(plan_.terms.ranks));
}

void CollectiveBuilder::given(int rank, Content content) {
  if (content.place.range.size() == 0) return;
  use(rank, content.place);
  plan_.by_rank[static_cast<size_t>(rank)].given.push_back(content);
}

void CollectiveBuilder::promised(int rank, Content content) {
  if (content.place.range.size() == 0) return;
  use(rank, content.place);
  plan_.by_rank[static_cast<size_t>(rank)].promised.push_back(content);
}

void CollectiveBuilder::result_given(int rank, ElementRange range, int term) {
  given(rank, {{kResult, range}, term, range.lo});
}

void CollectiveBuilder::result_promised(int rank, ElementRange range, int term) {
  promised(rank, {{kResult, range}, term, range.lo});
}

void CollectiveBuilder::message(int round, int from, const Place& source, int to,
                                const Place& target) {
  if (source.range.size() == 0) return;
  use(from, source);
  use(to, target);
  at(round, from).transfers.push_back({Direction::send, to, source});
  at(round, to).transfers.push_back({Direction::receive, from, target});
}

void CollectiveBuilder::message(int round, int from, int to, ElementRange range) {
  message(round, from, {kResult, range}, to, {kResult, range});
}

void CollectiveBuilder::add(int round, int rank, const Place& into, const Place& left,
                            const Place& right) {
  local(round, rank, {into, {left, right}, {{0, 1}}});
}

void CollectiveBuilder::copy(int round, int rank, const Place& into, const Place& from) {
  local(round, rank, {into, {from}, {}});
}

void CollectiveBuilder::local(int round, int rank, LocalStep step) {
  if (step.into.range.size() == 0) return;
  if (step.sources.size() == 1 && step.sources[0] == step.into) return;
  use(rank, step.into);
  for (const Place& source : step.sources) use(rank, source);
  at(round, rank).local.push_back(std::move(step));
}

CollectivePlan CollectiveBuilder::take() { return std::move(plan_); }

CollectiveRound& CollectiveBuilder::at(int round, int rank) {
  auto& rounds = plan_.by_rank[static_cast<size_t>(rank)].rounds;
  // Nearly always the last: generators go through rounds in order.
  auto place = rounds.end();
  while (place != rounds.begin() && std::prev(place)->number >= round) --place;
  if (place == rounds.end() || place->number != round)
    place = rounds.insert(place, {round, {}, {}});
  return *place;
}

void CollectiveBuilder::use(int rank, const Place& place) {
  RankSteps& steps = plan_.by_rank[static_cast<size_t>(rank)];
  if (place.buffer == kResult) steps.result = std::max(steps.result, place.range.hi);
  if (place.buffer == kScratch) steps.scratch = std::max(steps.scratch, place.range.hi);
}

Place scratch(int64_t lo, int64_t size) { return {kScratch, {lo, lo + size}}; }

SumPlan one_term_a_rank(int ranks) {
  std::vector<std::vector<LeafRange>> terms;
  for (int rank = 0; rank < ranks; ++rank) terms.push_back({{rank, rank + 1}});
  return plan_sum(ranks, terms);
}

CollectiveBuilder sum_in_place(Collective operation, Algorithm algorithm, int ranks,
                               int64_t count) {
  expect_count(count);
  const std::vector<int> members = all_ranks(ranks);
  CollectiveBuilder builder(operation, algorithm, one_term_a_rank(ranks));
  for (const int rank : members) builder.result_given(rank, {0, count}, rank);
  return builder;
}

std::vector<ElementRange> slices_of(const std::vector<int64_t>& counts) {
  std::vector<ElementRange> slices;
  int64_t at = 0;
  for (const int64_t count : counts) {
    expect_count(count);
    slices.push_back({at, at + count});
    at += count;
  }
  return slices;
}

std::vector<ElementRange> slices_of(ElementRange range, int parts) {
  std::vector<ElementRange> slices;
  for (int part = 0; part < parts; ++part) {
    const ElementRange slice = slice_of(range.size(), parts, part);
    slices.push_back({range.lo + slice.lo, range.lo + slice.hi});
  }
  return slices;
}

std::vector<int> all_ranks(int ranks) {
  if (ranks < 1) throw UsageError(base::str("a collective of ", ranks, " ranks: at least 1"));
  std::vector<int> members(static_cast<size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  return members;
}

void expect_count(int64_t count) {
  if (count < 0) throw UsageError(base::str("a collective of ", count, " elements: at least 0"));
}

void expect_algorithm(Collective operation, Algorithm algorithm) {
  const auto possible = algorithms_of(operation);
  if (std::find(possible.begin(), possible.end(), algorithm) != possible.end()) return;
  std::vector<std::string> names;
  for (const Algorithm one : possible) names.push_back(name_of(one));
  throw UsageError(base::str(name_of(operation), " has no algorithm \"", name_of(algorithm),
                             "\".\n  Its algorithms: ", base::joined(names), "."));
}

void expect_chunks(Algorithm algorithm, int chunks) {
  const bool pipelined = algorithm == Algorithm::binomial || algorithm == Algorithm::tree ||
                         algorithm == Algorithm::double_tree;
  if (chunks < 1) throw UsageError(base::str(chunks, " chunks: a range is at least 1 chunk"));
  if (chunks == 1 || pipelined) return;
  throw UsageError(base::str(chunks, " chunks: \"", name_of(algorithm),
                             "\" has no pipeline that they could follow each other in.\n  Use 1 "
                             "chunk, or binomial, tree or double_tree."));
}

}  // namespace lockstep::plan::detail
