#include "lockstep/plan/collective_check.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/str.h"
#include "lockstep/plan/detail/symbolic_memory.h"

namespace lockstep::plan {
namespace {

using detail::kUndefined;
using detail::Stretch;
using detail::SymbolicMemory;
using detail::SymbolicSums;

std::string text(const Place& place) {
  return base::str("buffer ", place.buffer, " [", place.range.lo, ",", place.range.hi, ")");
}

bool overlap(const Place& a, const Place& b) {
  return a.buffer == b.buffer && a.range.lo < b.range.hi && b.range.lo < a.range.hi;
}

[[noreturn]] void fail(int rank, int round, const std::string& what) {
  throw std::logic_error(base::str("rank ", rank, ", round ", round, ": ", what));
}

// ---- what can be said of a rank alone

int64_t length_of(const RankSteps& steps, int buffer) {
  if (buffer == kResult) return steps.result;
  if (buffer == kScratch) return steps.scratch;
  int64_t length = 0;
  for (const Content& content : steps.given) {
    if (content.place.buffer == buffer) length = std::max(length, content.place.range.hi);
  }
  return length;
}

void check_place(const RankSteps& steps, int rank, int round, const Place& place) {
  const ElementRange range = place.range;
  const int64_t length = length_of(steps, place.buffer);
  if (0 <= range.lo && range.lo <= range.hi && range.hi <= length) return;
  fail(rank, round, base::str(text(place), " reaches out of ", length, " elements"));
}

void check_local(const RankSteps& steps, int rank, int round, const LocalStep& step) {
  check_place(steps, rank, round, step.into);
  if (step.sources.empty()) fail(rank, round, "a local step without sources");
  for (const Place& source : step.sources) {
    check_place(steps, rank, round, source);
    if (source.range.size() != step.into.range.size()) {
      fail(rank, round, base::str(text(step.into), " is set from ", text(source)));
    }
    if (source != step.into && overlap(source, step.into)) {
      fail(rank, round, base::str(text(step.into), " overlaps its source ", text(source)));
    }
  }
  for (const AddStep& addition : step.additions) {
    const auto slots = static_cast<int>(step.sources.size());
    if (std::min(addition.into, addition.from) < 0 ||
        std::max(addition.into, addition.from) >= slots) {
      fail(rank, round, base::str("an addition beyond ", slots, " sources"));
    }
  }
}

/// In the order of memory, only the furthest-reaching send and the last receive before a place can
/// overlap it.
void check_in_flight(int rank, const CollectiveRound& round) {
  std::vector<const Transfer*> in_order;
  for (const Transfer& transfer : round.transfers) {
    if (transfer.place.range.size() > 0) in_order.push_back(&transfer);
  }
  std::sort(in_order.begin(), in_order.end(),
            [](const Transfer* a, const Transfer* b) { return a->place < b->place; });
  const Transfer* furthest = nullptr;
  const Transfer* received = nullptr;
  for (const Transfer* transfer : in_order) {
    const bool receives = transfer->direction == Direction::receive;
    const Transfer* other = receives ? furthest : received;
    if (other != nullptr && overlap(other->place, transfer->place)) {
      fail(rank, round.number,
           base::str(text(transfer->place), " and ", text(other->place),
                     " are in flight together, and one of them is received"));
    }
    const auto reach = [](const Transfer* t) {
      return std::pair(t->place.buffer, t->place.range.hi);
    };
    if (furthest == nullptr || reach(furthest) < reach(transfer)) furthest = transfer;
    if (receives) received = transfer;
  }
}

void check_alone(const RankSteps& steps, int rank) {
  int before = -1;
  for (const CollectiveRound& round : steps.rounds) {
    if (round.number <= before) fail(rank, round.number, "rounds do not come in rising order");
    before = round.number;
    for (const Transfer& transfer : round.transfers) {
      check_place(steps, rank, round.number, transfer.place);
    }
    for (const LocalStep& step : round.local) check_local(steps, rank, round.number, step);
    check_in_flight(rank, round);
  }
}

// ---- all ranks together

class Simulation {
 public:
  explicit Simulation(const CollectivePlan& plan)
      : plan_(plan),
        ranks_(plan.by_rank.size()),
        sums_(static_cast<int>(plan.terms.terms.size())),
        waiting_(plan.by_rank.size() * plan.by_rank.size()) {}

  /// Whether the promised sums are canonical.
  bool run() {
    for (int rank = 0; rank < plan_.ranks(); ++rank) {
      check_alone(plan_.by_rank[static_cast<size_t>(rank)], rank);
      place_terms(rank);
    }
    for (int rank = 0; rank < plan_.ranks(); ++rank) enter(rank);
    while (!ready_.empty()) {
      const int rank = ready_.back();
      ready_.pop_back();
      finish_round(rank);
      enter(rank);
    }
    expect_all_finished();
    return promises_hold();
  }

 private:
  struct Rank {
    std::map<int, SymbolicMemory> memory;
    size_t round = 0;       // index of the round it is in
    int64_t in_flight = 0;  // transfers of that round that are not complete
  };
  struct Posted {
    int rank;
    const Transfer* transfer;
  };

  void place_terms(int rank) {
    const auto num_terms = static_cast<int>(plan_.terms.terms.size());
    for (const Content& content : plan_.by_rank[static_cast<size_t>(rank)].given) {
      const Place& place = content.place;
      if (content.term < 0 || content.term >= num_terms) {
        throw std::logic_error(base::str("rank ", rank, ", at the start: ", text(place),
                                         " holds term ", content.term, " of ", num_terms));
      }
      memory(rank, place.buffer)
          .write(place.range.lo, {{place.range.size(), content.term, content.element}});
    }
  }

  const CollectiveRound& round_of(int rank) const {
    const auto r = static_cast<size_t>(rank);
    return plan_.by_rank[r].rounds[ranks_[r].round];
  }

  bool finished(int rank) const {
    const auto r = static_cast<size_t>(rank);
    return ranks_[r].round == plan_.by_rank[r].rounds.size();
  }

  /// Posts all transfers of the rank's round.
  void enter(int rank) {
    if (finished(rank)) return;
    Rank& state = ranks_[static_cast<size_t>(rank)];
    const CollectiveRound& round = round_of(rank);
    state.in_flight = static_cast<int64_t>(round.transfers.size());
    if (round.transfers.empty()) ready_.push_back(rank);
    for (const Transfer& transfer : round.transfers) post({rank, &transfer});
  }

  void post(Posted posted) {
    const bool sends = posted.transfer->direction == Direction::send;
    const auto rank = static_cast<size_t>(posted.rank);
    const auto peer = static_cast<size_t>(posted.transfer->peer);
    if (peer >= ranks_.size() || peer == rank) {
      fail(posted.rank, round_of(posted.rank).number,
           base::str("its peer is ", posted.transfer->peer));
    }
    auto& queue = waiting_[sends ? rank * ranks_.size() + peer : peer * ranks_.size() + rank];
    if (queue.empty() || queue.front().transfer->direction == posted.transfer->direction) {
      queue.push_back(posted);
      return;
    }
    const Posted other = queue.front();
    queue.erase(queue.begin());
    deliver(sends ? posted : other, sends ? other : posted);
  }

  void deliver(Posted send, Posted receive) {
    const Place& from = send.transfer->place;
    const Place& to = receive.transfer->place;
    if (from.range.size() != to.range.size()) {
      fail(receive.rank, round_of(receive.rank).number,
           base::str("receives ", to.range.size(), " elements from rank ", send.rank,
                     ", which sends ", from.range.size()));
    }
    memory(receive.rank, to.buffer).write(to.range.lo, read(send.rank, from));
    for (const int rank : {send.rank, receive.rank}) {
      if (--ranks_[static_cast<size_t>(rank)].in_flight == 0) ready_.push_back(rank);
    }
  }

  void finish_round(int rank) {
    for (const LocalStep& step : round_of(rank).local) {
      std::vector<std::vector<Stretch>> slots;
      for (const Place& source : step.sources) slots.push_back(read(rank, source));
      try {
        for (const AddStep& addition : step.additions) {
          auto& into = slots[static_cast<size_t>(addition.into)];
          into = detail::added(sums_, into, slots[static_cast<size_t>(addition.from)]);
        }
      } catch (const std::logic_error& error) {
        fail(rank, round_of(rank).number, error.what());
      }
      memory(rank, step.into.buffer).write(step.into.range.lo, slots[0]);
    }
    ++ranks_[static_cast<size_t>(rank)].round;
  }

  SymbolicMemory& memory(int rank, int buffer) {
    return ranks_[static_cast<size_t>(rank)].memory[buffer];
  }

  std::vector<Stretch> read(int rank, const Place& place) {
    std::vector<Stretch> found = memory(rank, place.buffer).read(place.range);
    for (const Stretch& stretch : found) {
      if (stretch.sum != kUndefined) continue;
      fail(rank, round_of(rank).number, text(place) + " is read before all of it was written");
    }
    return found;
  }

  void expect_all_finished() const {
    for (const auto& queue : waiting_) {
      if (queue.empty()) continue;
      const auto [rank, transfer] = queue.front();
      const int peer = transfer->peer;
      const char* missing = transfer->direction == Direction::send ? "receive" : "send";
      fail(rank, round_of(rank).number,
           base::str("waits for rank ", peer, " to ", missing, ", which ",
                     finished(peer) ? std::string("has finished")
                                    : base::str("waits in round ", round_of(peer).number)));
    }
  }

  bool promises_hold() {
    const int canonical = canonical_sum();
    bool all_canonical = true;
    SymbolicMemory agreed;  // by element: its sum on the ranks before
    for (int rank = 0; rank < plan_.ranks(); ++rank) {
      for (const Content& content : plan_.by_rank[static_cast<size_t>(rank)].promised) {
        int64_t element = content.element;
        for (const Stretch& held : memory(rank, content.place.buffer).read(content.place.range)) {
          expect(rank, content, held, element);
          if (content.term == kSum) {
            expect_agreement(rank, agreed, held);
            all_canonical &= held.sum == canonical;
          }
          element += held.size;
        }
      }
    }
    return all_canonical;
  }

  int canonical_sum() {
    std::vector<int> slots;
    for (size_t t = 0; t < plan_.terms.terms.size(); ++t) slots.push_back(static_cast<int>(t));
    for (const AddStep& addition : plan_.terms.additions) {
      int& into = slots[static_cast<size_t>(addition.into)];
      into = sums_.add(into, slots[static_cast<size_t>(addition.from)]);
    }
    return slots.empty() ? kUndefined : slots[0];
  }

  void expect(int rank, const Content& content, const Stretch& held, int64_t element) const {
    std::string what;
    if (held.sum == kUndefined) {
      what = "was not written everywhere";
    } else if (held.element != element) {
      what = base::str("holds element ", held.element, " in place of ", element);
    } else if (content.term == kSum && !sums_.complete(held.sum)) {
      what = "holds a sum that lacks a term";
    } else if (content.term != kSum && held.sum != content.term) {
      what = base::str("does not hold term ", content.term);
    }
    if (what.empty()) return;
    throw std::logic_error(
        base::str("rank ", rank, ", at the end: ", text(content.place), " ", what));
  }

  static void expect_agreement(int rank, SymbolicMemory& agreed, const Stretch& held) {
    bool is_new = false;
    for (const Stretch& before : agreed.read({held.element, held.element + held.size})) {
      is_new |= before.sum == kUndefined;
      if (before.sum == kUndefined || before.sum == held.sum) continue;
      throw std::logic_error(base::str("rank ", rank, ", at the end: element ", before.element,
                                       " was added in another order than on a rank before"));
    }
    if (is_new) agreed.write(held.element, {held});
  }

  const CollectivePlan& plan_;
  std::vector<Rank> ranks_;
  SymbolicSums sums_;
  std::vector<std::vector<Posted>> waiting_;  // [sender * ranks + receiver]: ends without the other
  std::vector<int> ready_;                    // ranks whose transfers are complete
};

}  // namespace

void check(const CollectivePlan& plan) { Simulation(plan).run(); }

bool is_canonical(const CollectivePlan& plan) { return Simulation(plan).run(); }

}  // namespace lockstep::plan
