// Collective plans as text, for readers and for the documents.
#include <map>
#include <utility>

#include "lockstep/base/str.h"
#include "lockstep/plan/collective_steps.h"

namespace lockstep::plan {
namespace {

std::string text(const Place& place) {
  const std::string range = base::str("[", place.range.lo, ",", place.range.hi, ")");
  if (place.buffer == kResult) return range;
  if (place.buffer == kScratch) return "scratch " + range;
  return base::str("term ", place.buffer - kFirstTerm, " ", range);
}

/// "sends [0,4) to 1, [4,8) to 2"; empty where the round has no such transfers.
std::string text(const CollectiveRound& round, Direction direction) {
  const bool sends = direction == Direction::send;
  std::string all;
  for (const Transfer& transfer : round.transfers) {
    if (transfer.direction != direction) continue;
    all += all.empty() ? (sends ? "sends " : "receives ") : ", ";
    all += base::str(text(transfer.place), sends ? " to " : " from ", transfer.peer);
  }
  return all;
}

/// "[0,4) = ([0,4) + scratch [0,4)) + scratch [4,8)"
std::string text(const LocalStep& step) {
  std::vector<std::string> sums;
  std::vector<bool> single(step.sources.size(), true);
  for (const Place& source : step.sources) sums.push_back(text(source));
  const auto grouped = [&](size_t slot) {
    return single[slot] ? sums[slot] : base::str("(", sums[slot], ")");
  };
  for (const AddStep& addition : step.additions) {
    const auto into = static_cast<size_t>(addition.into);
    sums[into] = base::str(grouped(into), " + ", grouped(static_cast<size_t>(addition.from)));
    single[into] = false;
  }
  return base::str(text(step.into), " = ", sums[0]);
}

/// The lines of one rank's round, without what stands before them.
std::vector<std::string> lines_of(int rank, const CollectiveRound& round) {
  std::vector<std::string> lines;
  const std::string sends = text(round, Direction::send);
  const std::string receives = text(round, Direction::receive);
  if (!round.transfers.empty()) {
    const char* between = sends.empty() || receives.empty() ? "" : "; ";
    lines.push_back(base::str("rank ", rank, " ", sends, between, receives));
  }
  for (const LocalStep& step : round.local) {
    lines.push_back(base::str("rank ", rank, " sets ", text(step)));
  }
  return lines;
}

}  // namespace

std::string to_text(const CollectivePlan& plan) {
  std::map<int, std::vector<std::string>> lines_of_round;
  for (int rank = 0; rank < plan.ranks(); ++rank) {
    for (const CollectiveRound& round : plan.by_rank[static_cast<size_t>(rank)].rounds) {
      auto& lines = lines_of_round[round.number];
      for (std::string& line : lines_of(rank, round)) lines.push_back(std::move(line));
    }
  }
  std::string all;
  for (const auto& [number, lines] : lines_of_round) {
    const std::string head = base::str("round ", number, ": ");
    std::string before = head;
    for (const std::string& line : lines) {
      all += before + line + "\n";
      before.assign(head.size(), ' ');
    }
  }
  return all;
}

}  // namespace lockstep::plan
