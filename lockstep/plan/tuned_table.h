/// Which algorithm was the fastest here: by operation and size, for an engine and for ranks on
/// hosts. `lockstep bench --tune` measures it, `comm.table` and `lockstep bench --table` follow it.
///
///   all_reduce   up to 2 KiB binomial, up to 128 KiB halving, direct beyond
///
/// Only algorithms that keep the order of the sum tree are in it: the bits of a run do not depend
/// on what was the fastest. Source  docs/concepts/choosing_algorithms.md
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "lockstep/plan/algorithm_table.h"

namespace lockstep::plan {

/// What there can be rows for: calls whose size all ranks know beforehand. In an all-to-all a rank
/// knows its own counts only.
inline constexpr std::array<Collective, 4> kTunedOperations = {
    Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
    Collective::broadcast};

/// What no table says otherwise.
inline constexpr Algorithm kBuiltIn = Algorithm::direct;

/// `hosts` hosts that hold runs of as many ranks each.
struct TunedFor {
  std::string engine;  // of plan/engines.h
  int ranks = 0;
  int hosts = 1;
  bool modelled = false;  // on a network that is not there
  bool operator==(const TunedFor&) const = default;
};

/// "shm, 4 ranks on 1 host".
std::string text(const TunedFor& where);

/// Whether sums by `algorithm` are added as the sum tree says, on ranks that `hosts` divides; true
/// of what adds nothing.
bool keeps_the_order(Collective operation, Algorithm algorithm, int ranks, int hosts);

/// Those of an operation that are worth measuring: they keep the order, and are not another one
/// under a second name.
std::vector<Algorithm> candidates(Collective operation, int ranks, int hosts);

/// Of several rounds of calls: the median of the rounds' medians, and what lies between the
/// smallest and the largest of them.
struct CandidateTime {
  Algorithm algorithm;
  double median_us = 0;
  double spread_us = 0;
  bool operator==(const CandidateTime&) const = default;
};

struct SizeTimes {
  int64_t bytes = 0;  // of a rank's tensor
  std::vector<CandidateTime> candidates;
  bool operator==(const SizeTimes&) const = default;
};

/// Sizes with one winner.
struct TunedRow {
  Algorithm algorithm;
  int64_t most_bytes = std::numeric_limits<int64_t>::max();
  std::vector<SizeTimes> measured;
  bool operator==(const TunedRow&) const = default;
};

struct TunedSection {
  TunedFor where;
  std::string machine;  // what it was measured on, for people
  std::map<Collective, std::vector<TunedRow>> rows;
  bool operator==(const TunedSection&) const = default;
};

using TunedTable = std::vector<TunedSection>;

/// Of `times.candidates` the one with the least median, if it beats the built-in choice by more
/// than the spread of either; else the built-in choice.
Algorithm winner(const SizeTimes& times);

/// Rows of `sizes`, which rise: neighbours with one winner are one row, up to the largest of them;
/// the last row has no end.
std::vector<TunedRow> rows_of(const std::vector<SizeTimes>& sizes);

/// Null if there is none.
const TunedSection* section_for(const TunedTable& table, const TunedFor& where);

/// The operations of `section` take the place of those that the table has for the same ranks; all
/// else stays.
void put(TunedTable& table, const TunedSection& section);

/// The rules of a section's rows, for runs of ranks on its hosts.
AlgorithmTable rules_of(const TunedSection& section);

/// "all_reduce: binomial to 2.0 KiB, direct beyond; broadcast: ...".
std::string text(const AlgorithmTable& rules);

}  // namespace lockstep::plan
