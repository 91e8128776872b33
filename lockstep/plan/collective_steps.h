/// Collectives as values: what every rank sends, receives and adds, round by round.
///
///   plan_all_reduce(Algorithm::direct, 2, 64)         to_text():
///     round 0: rank 0 sends [32,64) to 1; receives scratch [0,32) from 1
///              rank 0 sets [0,32) = [0,32) + scratch [0,32)
///              ...
///
/// One executor carries every plan out, over messages or over peers' memory; collective_check.h
/// proves a plan, collective_cost.h has the closed forms of what it costs.
/// Source  docs/concepts/collective_algorithms.md
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/plan/sum_plan.h"

namespace lockstep::plan {

enum class Collective { all_reduce, reduce_scatter, all_gather, broadcast, reduce, all_to_all };

enum class Algorithm : uint8_t {
  direct,              // every rank sends to every other at once
  ring,                // to the next rank only, N-1 times around
  halving,             // partners at distance 1, 2, 4...; halves of what is left, and back
  binomial,            // along the sum tree: log2 N levels, whole ranges in chunks
  tree,                // one balanced binary tree, in chunks
  double_tree,         // two of them, each for half of the elements
  hierarchical,        // inside hosts, across hosts, inside hosts
  bruck,               // distances 1, 2, 4... around a ring; any number of ranks
  scatter_all_gather,  // the root deals out slices, a ring gathers them
  pairwise,            // one partner a round
};

/// "all_reduce", "double_tree"... as in the enumerations.
std::string name_of(Collective operation);
std::string name_of(Algorithm algorithm);

/// Throws UsageError, listing the names there are.
Algorithm parse_algorithm(std::string_view name);
Collective parse_collective(std::string_view name);

/// The algorithms there are for `operation`, in the order of the enumeration.
std::vector<Algorithm> algorithms_of(Collective operation);

/// The memories of a rank. Term i of a rank that brings several is buffer kFirstTerm + i.
inline constexpr int kResult = 0;   // in and out: the whole count of elements
inline constexpr int kScratch = 1;  // RankSteps::scratch elements, undefined at the start
inline constexpr int kFirstTerm = 2;

struct Place {
  int buffer = kResult;
  ElementRange range;
  auto operator<=>(const Place&) const = default;
};

enum class Direction { send, receive };

/// One message, as one of its two ends sees it. Messages from one rank to another arrive in the
/// order in which they were sent, and match by that order.
struct Transfer {
  Direction direction;
  int peer;
  Place place;  // its elements; equally many at both ends
};

/// into = the sum of `sources`, by the rule of AddStep over them; of one source: a copy.
/// `into` is one of the sources or apart from all of them.
struct LocalStep {
  Place into;
  std::vector<Place> sources;
  std::vector<AddStep> additions;
};

/// All transfers of a rank's round may be in flight together: no memory that one of them receives
/// is touched by another. When all are complete the local steps run in order, then the next round.
struct CollectiveRound {
  int number;  // over all ranks; a rank that has nothing to do in a round has no entry for it
  std::vector<Transfer> transfers;
  std::vector<LocalStep> local;
};

inline constexpr int kSum = -1;

/// `place` holds elements element, element + 1, ... of term `term` (an index of
/// SumPlan::terms), or of the sum of all terms.
struct Content {
  Place place;
  int term;
  int64_t element;
};

struct RankSteps {
  int64_t result = 0;             // elements of the result buffer
  int64_t scratch = 0;            // elements
  std::vector<Content> given;     // before the first round
  std::vector<Content> promised;  // after the last
  std::vector<CollectiveRound> rounds;
};

struct CollectivePlan {
  Collective operation;
  Algorithm algorithm;
  SumPlan terms;  // what each rank brings; for sums, also the canonical order of adding
  std::vector<RankSteps> by_rank;

  int ranks() const { return static_cast<int>(by_rank.size()); }
};

/// Sums `count` elements of one term a rank, in place, over `ranks` ranks. `chunks`: parts of the
/// range that follow each other through binomial, tree and double_tree.
///
/// Canonical: direct, halving and binomial for any number of ranks; tree up to 3, ring and
/// double_tree up to 2.
/// throws  UsageError: an algorithm that is not one of algorithms_of(all_reduce), or is
///         hierarchical, which needs hosts; several chunks where there is no pipeline; no ranks
CollectivePlan plan_all_reduce(Algorithm algorithm, int ranks, int64_t count, int chunks = 1);

/// Direct, of any terms: a rank's only term is in its result buffer, several have buffers of their
/// own. Canonical. Throws UsageError for a sum without terms.
CollectivePlan plan_all_reduce(const SumPlan& sum, int64_t count);

/// Whether every rank brings one term, and they are added as one leaf a rank would be: then the
/// algorithms over ranks take the sum, too.
bool ranks_are_leaves(const SumPlan& sum);

/// Reduce-scatter inside each host, all-reduce across hosts among the ranks of one place in them,
/// all-gather inside. `hosts`: the ranks of each; `inside`, `across`: direct or halving.
///
/// Canonical if hosts hold runs of a power of two of ranks, in rising order.
/// throws  UsageError: hosts of unequal sizes; a rank missing or named twice; another algorithm
CollectivePlan plan_hierarchical_all_reduce(const std::vector<std::vector<int>>& hosts,
                                            int64_t count, Algorithm inside = Algorithm::direct,
                                            Algorithm across = Algorithm::direct);

/// Whether it would be canonical over these hosts, and shorter than direct: several hosts of
/// several ranks, each a run of a power of two, in rising order.
bool hosts_are_subtrees(const std::vector<std::vector<int>>& hosts);

/// Slice r of the result buffer, counts[r] elements behind the slices before it, ends as the sum
/// on rank r. What else is in the buffer is used up. direct, ring, halving; all but ring canonical.
CollectivePlan plan_reduce_scatter(Algorithm algorithm, const std::vector<int64_t>& counts);

/// Direct, of any terms, which each span all slices; where they lie: see plan_all_reduce.
CollectivePlan plan_reduce_scatter(const SumPlan& sum, const std::vector<int64_t>& counts);

/// Rank r brings slice r of the result buffer; all end with all slices. direct, ring, halving,
/// bruck.
CollectivePlan plan_all_gather(Algorithm algorithm, const std::vector<int64_t>& counts);

/// The root's elements reach every rank. direct, binomial (in chunks), scatter_all_gather.
CollectivePlan plan_broadcast(Algorithm algorithm, int ranks, int root, int64_t count,
                              int chunks = 1);

/// The sum reaches `root`; what the others' buffers hold is used up. binomial (in chunks),
/// canonical for every root.
CollectivePlan plan_reduce(Algorithm algorithm, int ranks, int root, int64_t count, int chunks = 1);

/// splits[r][p]: elements from rank r to rank p. A rank's term buffer holds its blocks in the order
/// of their receivers, its result those it receives in the order of senders. direct, pairwise;
/// bruck, which needs all splits to be equal.
CollectivePlan plan_all_to_all(Algorithm algorithm,
                               const std::vector<std::vector<int64_t>>& splits);

/// Rounds in which some rank sends.
int num_rounds(const CollectivePlan& plan);

/// Bytes that `rank` sends, and that it receives.
int64_t bytes_sent(const CollectivePlan& plan, int rank, int64_t bytes_per_element);
int64_t bytes_received(const CollectivePlan& plan, int rank, int64_t bytes_per_element);

/// By host: bytes that its ranks send to other hosts. host_of_rank[r] counts from 0.
std::vector<int64_t> bytes_over_uplink(const CollectivePlan& plan,
                                       const std::vector<int>& host_of_rank,
                                       int64_t bytes_per_element);

/// Round by round, a line for a rank's transfers and a line for each of its local steps. Ranges
/// without a name are of the result buffer.
std::string to_text(const CollectivePlan& plan);

}  // namespace lockstep::plan
