/// Writes collective plans down: a message is entered once and becomes a send and a receive.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/plan/collective_steps.h"

namespace lockstep::plan::detail {

class CollectiveBuilder {
 public:
  CollectiveBuilder(Collective operation, Algorithm algorithm, SumPlan terms);

  void given(int rank, Content content);
  void promised(int rank, Content content);

  /// Term `term` lies in the rank's result buffer, or must end there.
  void result_given(int rank, ElementRange range, int term);
  void result_promised(int rank, ElementRange range, int term);

  /// One message in `round`, from a place of `from` to a place of `to`; without elements: none.
  void message(int round, int from, const Place& source, int to, const Place& target);

  /// The same range of the result buffer at both ends.
  void message(int round, int from, int to, ElementRange range);

  /// into = left + right, after the transfers of `round`.
  void add(int round, int rank, const Place& into, const Place& left, const Place& right);
  void copy(int round, int rank, const Place& into, const Place& from);
  void local(int round, int rank, LocalStep step);

  /// The plan; result and scratch reach as far as the places used in them.
  CollectivePlan take();

 private:
  CollectiveRound& at(int round, int rank);
  void use(int rank, const Place& place);

  CollectivePlan plan_;
};

/// `size` elements of scratch from `lo` on.
Place scratch(int64_t lo, int64_t size);

/// Terms of which rank r brings leaf r.
SumPlan one_term_a_rank(int ranks);

/// The start of a sum over `ranks` ranks: each brings `count` elements in its result buffer.
CollectiveBuilder sum_in_place(Collective operation, Algorithm algorithm, int ranks, int64_t count);

/// Slices of these lengths, one behind the other.
std::vector<ElementRange> slices_of(const std::vector<int64_t>& counts);

/// `parts` slices of `range`, by slice_of.
std::vector<ElementRange> slices_of(ElementRange range, int parts);

/// 0, 1, ... ranks - 1. Throws UsageError if there are none.
std::vector<int> all_ranks(int ranks);

/// Throws UsageError for a negative count of elements.
void expect_count(int64_t count);

/// Throws UsageError unless `algorithm` is one of those of `operation`.
void expect_algorithm(Collective operation, Algorithm algorithm);

/// Throws UsageError unless chunks is positive, and 1 where `algorithm` has no pipeline.
void expect_chunks(Algorithm algorithm, int chunks);

}  // namespace lockstep::plan::detail
