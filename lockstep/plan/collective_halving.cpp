// Recursive halving and doubling, over binary blocks where the number of ranks is no power of two.
#include <algorithm>
#include <bit>
#include <utility>

#include "lockstep/base/assert.h"
#include "lockstep/plan/detail/collective_parts.h"

namespace lockstep::plan::detail {
namespace {

struct PieceRun {  // pieces first .. last - 1
  int first;
  int last;
};

/// What member `index` of a block keeps of `pieces` after `steps` halvings: the same in every
/// block, so that what a member of a larger block keeps lies within what one of a smaller block
/// keeps.
PieceRun kept_pieces(int pieces, int index, int steps) {
  PieceRun run{0, pieces};
  for (int step = 0; step < steps; ++step) {
    const int middle = (run.first + run.last) / 2;
    (index >> step & 1 ? run.first : run.last) = middle;
  }
  return run;
}

}  // namespace

Halving::Halving(CollectiveBuilder& builder, Members members, Slices pieces)
    : builder_(builder), members_(std::move(members)), pieces_(std::move(pieces)) {
  auto left = static_cast<unsigned>(members_.size());
  for (int first = 0; left > 0; first += blocks_.back().size()) {
    blocks_.push_back({first, static_cast<int>(std::bit_width(left)) - 1});
    left -= std::bit_floor(left);
  }
  LOCKSTEP_ASSERT(static_cast<int>(pieces_.size()) >= blocks_[0].size(),
                  "every member of the largest block holds a piece in between");
}

int Halving::reduce(int round) const {
  for (const Block& block : blocks_) {
    for (int step = 0; step < block.levels; ++step) exchange_halves(block, step, round + step);
  }
  int ready = round + blocks_.back().levels;
  for (size_t b = blocks_.size() - 1; b > 0; --b) {
    const int meet = std::max(ready, round + blocks_[b - 1].levels);
    fold(blocks_[b], blocks_[b - 1], meet);
    ready = meet + 1;
  }
  return ready;
}

int Halving::gather(int round) const {
  int last = round;
  for (size_t b = 0; b < blocks_.size(); ++b) {
    const Block& block = blocks_[b];
    if (b > 0) unfold(blocks_[b - 1], block, round++);
    for (int step = block.levels - 1; step >= 0; --step) {
      exchange_doubled(block, step, round + block.levels - 1 - step);
    }
    last = std::max(last, round + block.levels);
  }
  return last;
}

int Halving::member(const Block& block, int index) const {
  return members_[static_cast<size_t>(block.first + index)];
}

ElementRange Halving::kept(int index, int steps) const {
  const PieceRun run = kept_pieces(static_cast<int>(pieces_.size()), index, steps);
  return {pieces_[static_cast<size_t>(run.first)].lo,
          pieces_[static_cast<size_t>(run.last) - 1].hi};
}

void Halving::exchange_halves(const Block& block, int step, int round) const {
  for (int index = 0; index < block.size(); ++index) {
    if (index >> step & 1) continue;
    const int other = index | 1 << step;
    const int left = member(block, index);
    const int right = member(block, other);
    const Place low{kResult, kept(index, step + 1)};
    const Place high{kResult, kept(other, step + 1)};
    const Place low_arrived = scratch(0, low.range.size());
    const Place high_arrived = scratch(0, high.range.size());
    builder_.message(round, left, high, right, high_arrived);
    builder_.message(round, right, low, left, low_arrived);
    builder_.add(round, left, low, low, low_arrived);
    builder_.add(round, right, high, high_arrived, high);
  }
}

void Halving::exchange_doubled(const Block& block, int step, int round) const {
  for (int index = 0; index < block.size(); ++index) {
    const int other = index ^ 1 << step;
    builder_.message(round, member(block, index), member(block, other), kept(index, step + 1));
  }
}

void Halving::fold(const Block& smaller, const Block& larger, int round) const {
  for (int index = 0; index < larger.size(); ++index) {
    const Place sum{kResult, kept(index, larger.levels)};
    const Place arrived = scratch(0, sum.range.size());
    const int to = member(larger, index);
    builder_.message(round, member(smaller, index % smaller.size()), sum, to, arrived);
    builder_.add(round, to, sum, sum, arrived);
  }
}

void Halving::unfold(const Block& larger, const Block& smaller, int round) const {
  for (int index = 0; index < larger.size(); ++index) {
    builder_.message(round, member(larger, index), member(smaller, index % smaller.size()),
                     kept(index, larger.levels));
  }
}

std::vector<int> halving_holders(int members) {
  const int levels = static_cast<int>(std::bit_width(static_cast<unsigned>(members))) - 1;
  std::vector<int> holders(static_cast<size_t>(members));
  for (int index = 0; index < 1 << levels; ++index) {
    const PieceRun run = kept_pieces(members, index, levels);
    std::fill(holders.begin() + run.first, holders.begin() + run.last, index);
  }
  return holders;
}

int halving_reduce_scatter(CollectiveBuilder& builder, const Members& members, const Slices& pieces,
                           const std::vector<int>& owners, int round) {
  const Halving halving(builder, members, pieces);
  const std::vector<int> holders = halving_holders(static_cast<int>(members.size()));
  round = halving.reduce(round);
  for (size_t piece = 0; piece < pieces.size(); ++piece) {
    if (holders[piece] == owners[piece]) continue;
    builder.message(round, members[static_cast<size_t>(holders[piece])],
                    members[static_cast<size_t>(owners[piece])], pieces[piece]);
  }
  return holders == owners ? round : round + 1;
}

int halving_all_gather(CollectiveBuilder& builder, const Members& members, const Slices& pieces,
                       const std::vector<int>& owners, int round) {
  const Halving halving(builder, members, pieces);
  const std::vector<int> holders = halving_holders(static_cast<int>(members.size()));
  for (size_t piece = 0; piece < pieces.size(); ++piece) {
    if (holders[piece] == owners[piece]) continue;
    builder.message(round, members[static_cast<size_t>(owners[piece])],
                    members[static_cast<size_t>(holders[piece])], pieces[piece]);
  }
  return halving.gather(holders == owners ? round : round + 1);
}

int halving_all_reduce(CollectiveBuilder& builder, const Members& members, ElementRange range,
                       int round) {
  // A piece for each member of the largest block.
  const auto pieces = static_cast<int>(std::bit_floor(members.size()));
  const Halving halving(builder, members, slices_of(range, pieces));
  return halving.gather(halving.reduce(round));
}

}  // namespace lockstep::plan::detail
