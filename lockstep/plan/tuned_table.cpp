#include "lockstep/plan/tuned_table.h"

#include <algorithm>
#include <bit>

#include "lockstep/base/assert.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"

namespace lockstep::plan {
namespace {

const CandidateTime* time_of(const SizeTimes& times, Algorithm algorithm) {
  for (const CandidateTime& candidate : times.candidates) {
    if (candidate.algorithm == algorithm) return &candidate;
  }
  return nullptr;
}

}  // namespace

std::string text(const TunedFor& where) {
  return base::str(where.modelled ? "modelled, " : "", where.engine, ", ", where.ranks,
                   where.ranks == 1 ? " rank" : " ranks", " on ", where.hosts,
                   where.hosts == 1 ? " host" : " hosts");
}

bool keeps_the_order(Collective operation, Algorithm algorithm, int ranks, int hosts) {
  if (operation != Collective::all_reduce && operation != Collective::reduce_scatter) return true;
  switch (algorithm) {
    case Algorithm::ring:
    case Algorithm::double_tree:
      return ranks <= 2;
    case Algorithm::tree:
      return ranks <= 3;
    case Algorithm::hierarchical:
      return hosts == 1 || std::has_single_bit(static_cast<unsigned>(ranks / hosts));
    default:
      return true;
  }
}

std::vector<Algorithm> candidates(Collective operation, int ranks, int hosts) {
  std::vector<Algorithm> found = algorithms_of(operation);
  std::erase_if(found, [&](Algorithm algorithm) {
    const bool flat = hosts == 1 || hosts == ranks;
    return (algorithm == Algorithm::hierarchical && flat) ||
           !keeps_the_order(operation, algorithm, ranks, hosts);
  });
  return found;
}

Algorithm winner(const SizeTimes& times) {
  LOCKSTEP_ASSERT(!times.candidates.empty(), "somebody was measured");
  const auto fastest =
      std::min_element(times.candidates.begin(), times.candidates.end(),
                       [](const auto& a, const auto& b) { return a.median_us < b.median_us; });
  const CandidateTime* built_in = time_of(times, kBuiltIn);
  if (built_in == nullptr) return fastest->algorithm;
  const double gained = built_in->median_us - fastest->median_us;
  return gained > std::max(built_in->spread_us, fastest->spread_us) ? fastest->algorithm : kBuiltIn;
}

std::vector<TunedRow> rows_of(const std::vector<SizeTimes>& sizes) {
  std::vector<TunedRow> rows;
  for (const SizeTimes& times : sizes) {
    const Algorithm algorithm = winner(times);
    if (rows.empty() || rows.back().algorithm != algorithm) {
      if (!rows.empty()) rows.back().most_bytes = rows.back().measured.back().bytes;
      rows.push_back({.algorithm = algorithm, .measured = {}});
    }
    rows.back().measured.push_back(times);
  }
  return rows;
}

const TunedSection* section_for(const TunedTable& table, const TunedFor& where) {
  for (const TunedSection& section : table) {
    if (section.where == where) return &section;
  }
  return nullptr;
}

void put(TunedTable& table, const TunedSection& section) {
  for (TunedSection& there : table) {
    if (there.where != section.where) continue;
    there.machine = section.machine;
    for (const auto& [operation, rows] : section.rows) there.rows[operation] = rows;
    return;
  }
  table.push_back(section);
}

AlgorithmTable rules_of(const TunedSection& section) {
  AlgorithmTable rules;
  for (const auto& [operation, rows] : section.rows) {
    for (const TunedRow& row : rows) {
      rules.rules.push_back({operation, row.algorithm, row.most_bytes});
    }
  }
  const int per_host = section.where.ranks / section.where.hosts;
  for (int rank = 0; rank < section.where.ranks; ++rank) {
    if (rank % per_host == 0) rules.hosts.emplace_back();
    rules.hosts.back().push_back(rank);
  }
  return rules;
}

std::string text(const AlgorithmTable& rules) {
  std::string all;
  std::string last;
  for (const AlgorithmRule& rule : rules.rules) {
    const std::string operation = name_of(rule.operation);
    if (operation != last) {
      all += base::str(all.empty() ? "" : "; ", operation, ": ");
    } else {
      all += ", ";
    }
    last = operation;
    const bool ends = rule.most_bytes != std::numeric_limits<int64_t>::max();
    all += name_of(rule.algorithm);
    if (ends) all += " to " + base::bytes_text(rule.most_bytes);
  }
  return all;
}

}  // namespace lockstep::plan
