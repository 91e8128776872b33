#include "lockstep/plan/collective_steps.h"

#include <array>
#include <set>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/plan/detail/collective_parts.h"

namespace lockstep::plan {
namespace {

constexpr std::array<std::pair<Algorithm, std::string_view>, 10> kAlgorithms = {{
    {Algorithm::direct, "direct"},
    {Algorithm::ring, "ring"},
    {Algorithm::halving, "halving"},
    {Algorithm::binomial, "binomial"},
    {Algorithm::tree, "tree"},
    {Algorithm::double_tree, "double_tree"},
    {Algorithm::hierarchical, "hierarchical"},
    {Algorithm::bruck, "bruck"},
    {Algorithm::scatter_all_gather, "scatter_all_gather"},
    {Algorithm::pairwise, "pairwise"},
}};

using detail::CollectiveBuilder;
using detail::Members;
using detail::Slices;

/// The order of the second tree: shifted by one. Inner nodes are at odd places, so nobody is an
/// inner node of both trees, be the number of members even or odd.
Members shifted(const Members& members) {
  Members order(members.begin() + 1, members.end());
  order.push_back(members[0]);
  return order;
}

void check_root(int ranks, int root) {
  if (0 <= root && root < ranks) return;
  throw UsageError(base::str("root ", root, " is none of the ", ranks, " ranks of the group"));
}

void write_all_reduce(CollectiveBuilder& builder, Algorithm algorithm, const Members& members,
                      ElementRange range, int chunks) {
  const auto ranks = static_cast<int>(members.size());
  const Slices parts = detail::slices_of(range, chunks);
  if (algorithm == Algorithm::direct) detail::direct_all_reduce(builder, members, range, 0);
  if (algorithm == Algorithm::halving) detail::halving_all_reduce(builder, members, range, 0);
  if (algorithm == Algorithm::ring) {
    const Slices slices = detail::slices_of(range, ranks);
    const int round = detail::ring_reduce_scatter(builder, members, slices, 0);
    detail::ring_all_gather(builder, members, slices, round);
  }
  if (algorithm == Algorithm::binomial) {
    detail::binomial_reduce(builder, members, 0, parts, 0);
    detail::binomial_broadcast(builder, members, 0, parts, detail::binomial_levels(members.size()));
  }
  if (algorithm == Algorithm::tree) detail::tree_all_reduce(builder, members, parts, 0);
  if (algorithm == Algorithm::double_tree) {
    const Slices halves = detail::slices_of(range, 2);
    detail::tree_all_reduce(builder, members, detail::slices_of(halves[0], chunks), 0);
    detail::tree_all_reduce(builder, shifted(members), detail::slices_of(halves[1], chunks), 0);
  }
}

}  // namespace

std::string name_of(Collective operation) {
  switch (operation) {
    case Collective::all_reduce:
      return "all_reduce";
    case Collective::reduce_scatter:
      return "reduce_scatter";
    case Collective::all_gather:
      return "all_gather";
    case Collective::broadcast:
      return "broadcast";
    case Collective::reduce:
      return "reduce";
    case Collective::all_to_all:
      return "all_to_all";
  }
  return "";
}

std::string name_of(Algorithm algorithm) {
  return std::string(kAlgorithms[static_cast<size_t>(algorithm)].second);
}

Algorithm parse_algorithm(std::string_view name) {
  std::vector<std::string> names;
  for (const auto& [algorithm, known] : kAlgorithms) {
    if (known == name) return algorithm;
    names.emplace_back(known);
  }
  const std::string near = base::nearest(std::string(name), names);
  throw UsageError(base::str("there is no algorithm \"", name, "\".\n  ",
                             near.empty() ? "" : base::str("Did you mean \"", near, "\"? "),
                             "Algorithms: ", base::joined(names), "."));
}

Collective parse_collective(std::string_view name) {
  std::vector<std::string> names;
  for (const Collective operation :
       {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
        Collective::broadcast, Collective::reduce, Collective::all_to_all}) {
    names.push_back(name_of(operation));
    if (names.back() == name) return operation;
  }
  throw UsageError(base::str("there is no collective \"", name,
                             "\".\n  Collectives: ", base::joined(names), "."));
}

std::vector<Algorithm> algorithms_of(Collective operation) {
  using enum Algorithm;
  switch (operation) {
    case Collective::all_reduce:
      return {direct, ring, halving, binomial, tree, double_tree, hierarchical};
    case Collective::reduce_scatter:
      return {direct, ring, halving};
    case Collective::all_gather:
      return {direct, ring, halving, bruck};
    case Collective::broadcast:
      return {direct, binomial, scatter_all_gather};
    case Collective::reduce:
      return {binomial};
    case Collective::all_to_all:
      return {direct, bruck, pairwise};
  }
  return {};
}

CollectivePlan plan_all_reduce(Algorithm algorithm, int ranks, int64_t count, int chunks) {
  detail::expect_algorithm(Collective::all_reduce, algorithm);
  detail::expect_chunks(algorithm, chunks);
  if (algorithm == Algorithm::hierarchical) {
    throw UsageError(
        "all_reduce: hierarchical needs to know which ranks share a host.\n  Call "
        "plan_hierarchical_all_reduce.");
  }
  CollectiveBuilder builder = detail::sum_in_place(Collective::all_reduce, algorithm, ranks, count);
  for (int rank = 0; rank < ranks; ++rank) builder.result_promised(rank, {0, count}, kSum);
  write_all_reduce(builder, algorithm, detail::all_ranks(ranks), {0, count}, chunks);
  return builder.take();
}

CollectivePlan plan_reduce_scatter(Algorithm algorithm, const std::vector<int64_t>& counts) {
  detail::expect_algorithm(Collective::reduce_scatter, algorithm);
  const auto ranks = static_cast<int>(counts.size());
  const Members members = detail::all_ranks(ranks);
  const Slices slices = detail::slices_of(counts);
  CollectiveBuilder builder =
      detail::sum_in_place(Collective::reduce_scatter, algorithm, ranks, slices.back().hi);
  for (size_t r = 0; r < counts.size(); ++r) builder.result_promised(members[r], slices[r], kSum);
  if (algorithm == Algorithm::direct) detail::direct_reduce_scatter(builder, members, slices, 0);
  if (algorithm == Algorithm::ring) detail::ring_reduce_scatter(builder, members, slices, 0);
  if (algorithm == Algorithm::halving) {
    detail::halving_reduce_scatter(builder, members, slices, members, 0);
  }
  return builder.take();
}

CollectivePlan plan_all_gather(Algorithm algorithm, const std::vector<int64_t>& counts) {
  detail::expect_algorithm(Collective::all_gather, algorithm);
  const auto ranks = static_cast<int>(counts.size());
  const Members members = detail::all_ranks(ranks);
  const Slices slices = detail::slices_of(counts);
  CollectiveBuilder builder(Collective::all_gather, algorithm, detail::one_term_a_rank(ranks));
  for (const int rank : members) {
    builder.result_given(rank, slices[static_cast<size_t>(rank)], rank);
    for (const int from : members) {
      builder.result_promised(rank, slices[static_cast<size_t>(from)], from);
    }
  }
  if (algorithm == Algorithm::direct) detail::direct_all_gather(builder, members, slices, 0);
  if (algorithm == Algorithm::ring) detail::ring_all_gather(builder, members, slices, 0);
  if (algorithm == Algorithm::bruck) detail::bruck_all_gather(builder, members, slices, 0);
  if (algorithm == Algorithm::halving) {
    detail::halving_all_gather(builder, members, slices, members, 0);
  }
  return builder.take();
}

CollectivePlan plan_broadcast(Algorithm algorithm, int ranks, int root, int64_t count, int chunks) {
  detail::expect_algorithm(Collective::broadcast, algorithm);
  detail::expect_chunks(algorithm, chunks);
  detail::expect_count(count);
  const Members members = detail::all_ranks(ranks);
  check_root(ranks, root);
  CollectiveBuilder builder(Collective::broadcast, algorithm, detail::one_term_a_rank(ranks));
  builder.result_given(root, {0, count}, root);
  for (const int rank : members) builder.result_promised(rank, {0, count}, root);

  if (algorithm == Algorithm::binomial) {
    detail::binomial_broadcast(builder, members, root, detail::slices_of({0, count}, chunks), 0);
    return builder.take();
  }
  Members from_root;
  for (int i = 0; i < ranks; ++i) from_root.push_back((root + i) % ranks);
  if (algorithm == Algorithm::direct) {
    for (int i = 1; i < ranks; ++i) {
      builder.message(0, root, from_root[static_cast<size_t>(i)], {0, count});
    }
  } else {
    const Slices slices = detail::slices_of({0, count}, ranks);
    const int round = detail::binomial_scatter(builder, from_root, slices, 0);
    detail::ring_all_gather(builder, from_root, slices, round);
  }
  return builder.take();
}

CollectivePlan plan_reduce(Algorithm algorithm, int ranks, int root, int64_t count, int chunks) {
  detail::expect_algorithm(Collective::reduce, algorithm);
  detail::expect_chunks(algorithm, chunks);
  const Members members = detail::all_ranks(ranks);
  check_root(ranks, root);
  CollectiveBuilder builder = detail::sum_in_place(Collective::reduce, algorithm, ranks, count);
  builder.result_promised(root, {0, count}, kSum);
  detail::binomial_reduce(builder, members, root, detail::slices_of({0, count}, chunks), 0);
  return builder.take();
}

int num_rounds(const CollectivePlan& plan) {
  std::set<int> numbers;
  for (const RankSteps& steps : plan.by_rank) {
    for (const CollectiveRound& round : steps.rounds) {
      if (!round.transfers.empty()) numbers.insert(round.number);
    }
  }
  return static_cast<int>(numbers.size());
}

namespace {

int64_t elements_of(const CollectivePlan& plan, int rank, Direction direction) {
  int64_t elements = 0;
  for (const CollectiveRound& round : plan.by_rank.at(static_cast<size_t>(rank)).rounds) {
    for (const Transfer& transfer : round.transfers) {
      if (transfer.direction == direction) elements += transfer.place.range.size();
    }
  }
  return elements;
}

}  // namespace

int64_t bytes_sent(const CollectivePlan& plan, int rank, int64_t bytes_per_element) {
  return elements_of(plan, rank, Direction::send) * bytes_per_element;
}

int64_t bytes_received(const CollectivePlan& plan, int rank, int64_t bytes_per_element) {
  return elements_of(plan, rank, Direction::receive) * bytes_per_element;
}

bool ranks_are_leaves(const SumPlan& sum) {
  if (std::ssize(sum.terms) != sum.ranks) return false;
  for (int rank = 0; rank < sum.ranks; ++rank) {
    if (sum.terms[static_cast<size_t>(rank)].rank != rank) return false;
  }
  return sum.additions == detail::one_term_a_rank(sum.ranks).additions;
}

std::vector<int64_t> bytes_over_uplink(const CollectivePlan& plan,
                                       const std::vector<int>& host_of_rank,
                                       int64_t bytes_per_element) {
  std::vector<int64_t> bytes;
  for (int rank = 0; rank < plan.ranks(); ++rank) {
    const auto host = static_cast<size_t>(host_of_rank.at(static_cast<size_t>(rank)));
    if (bytes.size() <= host) bytes.resize(host + 1);
    for (const CollectiveRound& round : plan.by_rank[static_cast<size_t>(rank)].rounds) {
      for (const Transfer& transfer : round.transfers) {
        const auto to = static_cast<size_t>(host_of_rank.at(static_cast<size_t>(transfer.peer)));
        if (transfer.direction == Direction::receive || to == host) continue;
        bytes[host] += transfer.place.range.size() * bytes_per_element;
      }
    }
  }
  return bytes;
}

}  // namespace lockstep::plan
