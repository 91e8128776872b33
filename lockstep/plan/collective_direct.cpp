// Direct and ring: every rank to every rank at once, or to the next one only.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/plan/detail/collective_parts.h"

namespace lockstep::plan {
namespace detail {
namespace {

int after(int round, const Members& members, int rounds) {
  return members.size() == 1 ? round : round + rounds;
}

}  // namespace

int direct_reduce_scatter(CollectiveBuilder& builder, const Members& members, const Slices& slices,
                          const std::vector<TermPlace>& terms,
                          const std::vector<AddStep>& additions, int round) {
  struct Message {
    size_t from;
    Place held;
    size_t to;
    Place arrived;
  };
  const size_t n = members.size();
  std::vector<std::vector<Message>> by_distance(n);
  for (size_t owner = 0; owner < n; ++owner) {
    const ElementRange slice = slices[owner];
    std::vector<Place> sources;
    int64_t free = 0;
    for (const TermPlace& term : terms) {
      const Place held{term.buffer, slice};
      const auto holder = static_cast<size_t>(term.member);
      if (holder == owner) {
        sources.push_back(held);
        continue;
      }
      const Place arrived = scratch(free, slice.size());
      free += slice.size();
      by_distance[(owner + n - holder) % n].push_back({holder, held, owner, arrived});
      sources.push_back(arrived);
    }
    builder.local(round, members[owner], {{kResult, slice}, std::move(sources), additions});
  }
  // Everybody sends to its next neighbour first: if all began with rank 0, its way in would be
  // crowded while the others' are idle.
  for (const std::vector<Message>& messages : by_distance) {
    for (const Message& message : messages) {
      builder.message(round, members[message.from], message.held, members[message.to],
                      message.arrived);
    }
  }
  return after(round, members, 1);
}

int direct_reduce_scatter(CollectiveBuilder& builder, const Members& members, const Slices& slices,
                          int round) {
  const auto num_members = static_cast<int>(members.size());
  std::vector<TermPlace> terms;
  for (int member = 0; member < num_members; ++member) terms.push_back({member, kResult});
  return direct_reduce_scatter(builder, members, slices, terms,
                               one_term_a_rank(num_members).additions, round);
}

int direct_all_gather(CollectiveBuilder& builder, const Members& members, const Slices& slices,
                      int round) {
  const size_t n = members.size();
  for (size_t distance = 1; distance < n; ++distance) {
    for (size_t i = 0; i < n; ++i) {
      builder.message(round, members[i], members[(i + distance) % n], slices[i]);
    }
  }
  return after(round, members, 1);
}

int direct_all_reduce(CollectiveBuilder& builder, const Members& members, ElementRange range,
                      int round) {
  const Slices slices = slices_of(range, static_cast<int>(members.size()));
  round = direct_reduce_scatter(builder, members, slices, round);
  return direct_all_gather(builder, members, slices, round);
}

int ring_reduce_scatter(CollectiveBuilder& builder, const Members& members, const Slices& slices,
                        int round) {
  const size_t n = members.size();
  for (size_t step = 0; step + 1 < n; ++step, ++round) {
    for (size_t i = 0; i < n; ++i) {
      const size_t next = (i + 1) % n;
      const ElementRange slice = slices[(i + n - step - 1) % n];
      const Place so_far = scratch(0, slice.size());
      builder.message(round, members[i], {kResult, slice}, members[next], so_far);
      builder.add(round, members[next], {kResult, slice}, so_far, {kResult, slice});
    }
  }
  return round;
}

int ring_all_gather(CollectiveBuilder& builder, const Members& members, const Slices& slices,
                    int round) {
  const size_t n = members.size();
  for (size_t step = 0; step + 1 < n; ++step, ++round) {
    for (size_t i = 0; i < n; ++i) {
      builder.message(round, members[i], members[(i + 1) % n], slices[(i + n - step) % n]);
    }
  }
  return round;
}

int bruck_all_gather(CollectiveBuilder& builder, const Members& members, const Slices& slices,
                     int round) {
  const size_t n = members.size();
  for (size_t distance = 1; distance < n; distance *= 2, ++round) {
    const size_t moved = std::min(distance, n - distance);
    for (size_t to = 0; to < n; ++to) {
      const size_t from = (to + distance) % n;
      const size_t last = from + moved;  // past the end of the members: wrapped
      const int64_t end = slices[std::min(last, n) - 1].hi;
      builder.message(round, members[from], members[to], {slices[from].lo, end});
      if (last <= n) continue;
      builder.message(round, members[from], members[to], {slices[0].lo, slices[last - n - 1].hi});
    }
  }
  return round;
}

}  // namespace detail

namespace {

/// A rank's only term is in its result buffer; several have buffers of their own.
std::vector<detail::TermPlace> place_terms(detail::CollectiveBuilder& builder, const SumPlan& sum,
                                           int64_t count) {
  std::vector<int> held(static_cast<size_t>(sum.ranks));
  for (const TermHolder& term : sum.terms) ++held[static_cast<size_t>(term.rank)];
  std::vector<detail::TermPlace> places;
  std::vector<int> met(held.size());
  for (size_t t = 0; t < sum.terms.size(); ++t) {
    const int rank = sum.terms[t].rank;
    const auto r = static_cast<size_t>(rank);
    const int buffer = held[r] == 1 ? kResult : kFirstTerm + met[r]++;
    places.push_back({rank, buffer});
    builder.given(rank, {{buffer, {0, count}}, static_cast<int>(t), 0});
  }
  return places;
}

void expect_terms(const SumPlan& sum) {
  if (!sum.terms.empty()) return;
  throw UsageError(
      "no rank brings a term, and a sum of nothing is not defined.\n  At least one rank must hold "
      "a leaf.");
}

}  // namespace

CollectivePlan plan_all_reduce(const SumPlan& sum, int64_t count) {
  detail::expect_count(count);
  expect_terms(sum);
  detail::CollectiveBuilder builder(Collective::all_reduce, Algorithm::direct, sum);
  const detail::Members members = detail::all_ranks(sum.ranks);
  const std::vector<detail::TermPlace> places = place_terms(builder, sum, count);
  for (const int rank : members) builder.result_promised(rank, {0, count}, kSum);

  const detail::Slices slices = detail::slices_of({0, count}, sum.ranks);
  const int round =
      detail::direct_reduce_scatter(builder, members, slices, places, sum.additions, 0);
  detail::direct_all_gather(builder, members, slices, round);
  return builder.take();
}

CollectivePlan plan_reduce_scatter(const SumPlan& sum, const std::vector<int64_t>& counts) {
  expect_terms(sum);
  detail::CollectiveBuilder builder(Collective::reduce_scatter, Algorithm::direct, sum);
  const detail::Slices slices = detail::slices_of(counts);
  const std::vector<detail::TermPlace> places = place_terms(builder, sum, slices.back().hi);
  for (int rank = 0; rank < sum.ranks; ++rank) {
    builder.result_promised(rank, slices[static_cast<size_t>(rank)], kSum);
  }
  detail::direct_reduce_scatter(builder, detail::all_ranks(sum.ranks), slices, places,
                                sum.additions, 0);
  return builder.take();
}

}  // namespace lockstep::plan
