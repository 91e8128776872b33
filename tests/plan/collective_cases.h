/// Plans of every collective and algorithm, and a plain way to carry a plan out on numbers.
#pragma once

#include <deque>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/str.h"
#include "lockstep/plan/collective_steps.h"

namespace lockstep::plan {

using Hosts = std::vector<std::vector<int>>;

/// Hosts that hold runs of `per_host` ranks.
inline Hosts runs_of(int per_host, int ranks) {
  Hosts hosts;
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank % per_host == 0) hosts.emplace_back();
    hosts.back().push_back(rank);
  }
  return hosts;
}

/// `count` elements over `ranks`, unevenly: some get none.
inline std::vector<int64_t> uneven(int64_t count, int ranks) {
  std::vector<int64_t> counts;
  int64_t left = count;
  for (int rank = 0; rank + 1 < ranks; ++rank) {
    counts.push_back(rank % 3 == 1 ? 0 : left / (ranks - rank) + rank % 2 * (left / 8));
    left -= counts.back();
  }
  counts.push_back(left);
  return counts;
}

using Splits = std::vector<std::vector<int64_t>>;

inline Splits equal_splits(int ranks, int64_t block) {
  return Splits(static_cast<size_t>(ranks),
                std::vector<int64_t>(static_cast<size_t>(ranks), block));
}

inline Splits uneven_splits(int ranks, int64_t count) {
  Splits splits;
  for (int from = 0; from < ranks; ++from) {
    splits.push_back(uneven(from % 4 == 2 ? 0 : count + from, ranks));
  }
  return splits;
}

inline const std::vector<Algorithm>& plain_all_reduces() {
  using enum Algorithm;
  static const std::vector<Algorithm> all = {direct, ring, halving, binomial, tree, double_tree};
  return all;
}

inline bool has_chunks(Algorithm algorithm) {
  return algorithm == Algorithm::binomial || algorithm == Algorithm::tree ||
         algorithm == Algorithm::double_tree;
}

/// visit(label, plan) for all-reduces of `count` elements, hierarchical ones of all host sizes too.
template <class Visit>
void for_each_all_reduce(int ranks, int64_t count, int chunks, const Visit& visit) {
  const std::string size = base::str(" of ", count, " over ", ranks);
  for (const Algorithm algorithm : plain_all_reduces()) {
    visit(name_of(algorithm) + size,
          plan_all_reduce(algorithm, ranks, count, has_chunks(algorithm) ? chunks : 1));
  }
  for (int per_host = 1; per_host <= ranks; ++per_host) {
    if (ranks % per_host != 0) continue;
    for (const Algorithm inside : {Algorithm::direct, Algorithm::halving}) {
      for (const Algorithm across : {Algorithm::direct, Algorithm::halving}) {
        visit(base::str("hierarchical, hosts of ", per_host, ", ", name_of(inside), ", ",
                        name_of(across), size),
              plan_hierarchical_all_reduce(runs_of(per_host, ranks), count, inside, across));
      }
    }
  }
}

/// visit(label, plan) for the other collectives.
template <class Visit>
void for_each_other(int ranks, int64_t count, int chunks, int root, const Visit& visit) {
  const auto each = [&](Collective operation, const auto& make) {
    for (const Algorithm algorithm : algorithms_of(operation)) {
      visit(base::str(name_of(operation), " ", name_of(algorithm), " of ", count, " over ", ranks),
            make(algorithm));
    }
  };
  const std::vector<int64_t> counts = uneven(count, ranks);
  const auto chunks_of = [&](Algorithm algorithm) { return has_chunks(algorithm) ? chunks : 1; };
  each(Collective::reduce_scatter, [&](Algorithm a) { return plan_reduce_scatter(a, counts); });
  each(Collective::all_gather, [&](Algorithm a) { return plan_all_gather(a, counts); });
  each(Collective::broadcast,
       [&](Algorithm a) { return plan_broadcast(a, ranks, root, count, chunks_of(a)); });
  each(Collective::reduce,
       [&](Algorithm a) { return plan_reduce(a, ranks, root, count, chunks_of(a)); });
  each(Collective::all_to_all, [&](Algorithm a) {
    return plan_all_to_all(a, a == Algorithm::bruck ? equal_splits(ranks, count / ranks)
                                                    : uneven_splits(ranks, count));
  });
}

template <class Visit>
void for_each_plan(int ranks, int64_t count, int chunks, int root, const Visit& visit) {
  for_each_all_reduce(ranks, count, chunks, visit);
  for_each_other(ranks, count, chunks, root, visit);
}

/// Carries a plan out on numbers: all ranks go through each round together, sends before receives.
template <class Number>
class Execution {
 public:
  /// value(term, element): what the terms hold.
  template <class Value>
  Execution(const CollectivePlan& plan, const Value& value) : memory_(plan.by_rank.size()) {
    int last = -1;
    for (int rank = 0; rank < plan.ranks(); ++rank) {
      const RankSteps& steps = plan.by_rank[static_cast<size_t>(rank)];
      buffer(rank, kResult).resize(static_cast<size_t>(steps.result));
      buffer(rank, kScratch).resize(static_cast<size_t>(steps.scratch));
      for (const Content& content : steps.given) {
        auto& memory = buffer(rank, content.place.buffer);
        memory.resize(std::max(memory.size(), static_cast<size_t>(content.place.range.hi)));
        for (int64_t i = 0; i < content.place.range.size(); ++i) {
          memory[static_cast<size_t>(content.place.range.lo + i)] =
              value(content.term, content.element + i);
        }
      }
      if (!steps.rounds.empty()) last = std::max(last, steps.rounds.back().number);
    }
    for (int number = 0; number <= last; ++number) run_round(plan, number);
  }

  std::vector<Number> at(int rank, const Place& place) {
    const auto& memory = buffer(rank, place.buffer);
    return {memory.begin() + place.range.lo, memory.begin() + place.range.hi};
  }

 private:
  std::vector<Number>& buffer(int rank, int which) {
    return memory_[static_cast<size_t>(rank)][which];
  }

  void store(int rank, const Place& place, const std::vector<Number>& numbers) {
    if (static_cast<int64_t>(numbers.size()) != place.range.size()) {
      throw std::logic_error("another number of elements than the place has");
    }
    std::copy(numbers.begin(), numbers.end(), buffer(rank, place.buffer).begin() + place.range.lo);
  }

  template <class Visit>
  static void for_each_round(const CollectivePlan& plan, int number, const Visit& visit) {
    for (int rank = 0; rank < plan.ranks(); ++rank) {
      for (const CollectiveRound& round : plan.by_rank[static_cast<size_t>(rank)].rounds) {
        if (round.number == number) visit(rank, round);
      }
    }
  }

  void run_round(const CollectivePlan& plan, int number) {
    std::map<std::pair<int, int>, std::deque<std::vector<Number>>> on_the_way;
    for_each_round(plan, number, [&](int rank, const CollectiveRound& round) {
      for (const Transfer& transfer : round.transfers) {
        if (transfer.direction == Direction::receive) continue;
        on_the_way[{rank, transfer.peer}].push_back(at(rank, transfer.place));
      }
    });
    for_each_round(plan, number, [&](int rank, const CollectiveRound& round) {
      for (const Transfer& transfer : round.transfers) {
        if (transfer.direction == Direction::send) continue;
        auto& messages = on_the_way[{transfer.peer, rank}];
        store(rank, transfer.place, messages.front());
        messages.pop_front();
      }
      for (const LocalStep& step : round.local) run_local(rank, step);
    });
  }

  void run_local(int rank, const LocalStep& step) {
    std::vector<std::vector<Number>> slots;
    for (const Place& source : step.sources) slots.push_back(at(rank, source));
    for (const AddStep& addition : step.additions) {
      auto& into = slots.at(static_cast<size_t>(addition.into));
      const auto& from = slots.at(static_cast<size_t>(addition.from));
      for (size_t i = 0; i < into.size(); ++i) into[i] += from[i];
    }
    store(rank, step.into, slots.at(0));
  }

  std::vector<std::map<int, std::vector<Number>>> memory_;
};

}  // namespace lockstep::plan
