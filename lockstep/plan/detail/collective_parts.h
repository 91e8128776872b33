/// The pieces that collectives are composed of. Each works among `members` (ranks, in order) on
/// ranges of their result buffers, starts in round `round`, returns the round after its last, and
/// uses scratch from element 0 on unless it says otherwise.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/plan/detail/collective_builder.h"

namespace lockstep::plan::detail {

using Members = std::vector<int>;
using Slices = std::vector<ElementRange>;

// ---- direct, ring: slices[i] is that of members[i]

/// Where a term of a sum lies: buffer `buffer` of members[member].
struct TermPlace {
  int member;
  int buffer;
};

/// Each member gathers its slice of all `terms` and adds them by `additions`.
int direct_reduce_scatter(CollectiveBuilder& builder, const Members& members, const Slices& slices,
                          const std::vector<TermPlace>& terms,
                          const std::vector<AddStep>& additions, int round);

/// One term a member, in its result buffer; member order is leaf order.
int direct_reduce_scatter(CollectiveBuilder& builder, const Members& members, const Slices& slices,
                          int round);
int direct_all_gather(CollectiveBuilder& builder, const Members& members, const Slices& slices,
                      int round);

/// Slice i starts at member i+1 and is summed on its way round to member i.
int ring_reduce_scatter(CollectiveBuilder& builder, const Members& members, const Slices& slices,
                        int round);
int ring_all_gather(CollectiveBuilder& builder, const Members& members, const Slices& slices,
                    int round);

/// In step t a member fetches, from the one 2^t places ahead, all that this one holds: itself and
/// those ahead of it. Two messages where that wraps around the end of the members.
int bruck_all_gather(CollectiveBuilder& builder, const Members& members, const Slices& slices,
                     int round);

// ---- halving: pieces lie in the order of memory

/// Recursive halving, nearest partner first, and recursive doubling back.
///
/// Members form blocks, one for each binary digit of their number, the largest first. In a block of
/// 2^k members, step t pairs those that differ in bit t; the one without the bit keeps the lower
/// half of the pieces that both still share. Then the blocks' sums meet, smallest block first:
/// that is the sum tree. In between the members of the largest block hold all pieces.
///
///   6 members: blocks 0 1 2 3 | 4 5      step 0: 0-1 2-3 4-5   step 1: 0-2 1-3
///   pieces in between: 0: a  1: c  2: b  3: d  (4: a b  5: c d, sent to 0 2 and 1 3)
class Halving {
 public:
  /// At least as many pieces as the largest block has members.
  Halving(CollectiveBuilder& builder, Members members, Slices pieces);

  int reduce(int round) const;
  int gather(int round) const;

 private:
  struct Block {
    int first;   // index in members_
    int levels;  // of 2^levels members
    int size() const { return 1 << levels; }
  };
  int member(const Block& block, int index) const;
  ElementRange kept(int index, int steps) const;
  void exchange_halves(const Block& block, int step, int round) const;
  void exchange_doubled(const Block& block, int step, int round) const;
  void fold(const Block& smaller, const Block& larger, int round) const;
  void unfold(const Block& larger, const Block& smaller, int round) const;

  CollectiveBuilder& builder_;
  Members members_;
  Slices pieces_;
  std::vector<Block> blocks_;
};

/// By piece: the index of the member that holds it in between, of `members` members and as many
/// pieces.
std::vector<int> halving_holders(int members);

/// Halving, then each piece moves to members[owners[piece]], unless it is there already.
int halving_reduce_scatter(CollectiveBuilder& builder, const Members& members, const Slices& pieces,
                           const std::vector<int>& owners, int round);

/// The way back: pieces move from their owners to where doubling needs them, then doubling.
int halving_all_gather(CollectiveBuilder& builder, const Members& members, const Slices& pieces,
                       const std::vector<int>& owners, int round);

/// Direct or halving, for composition; the sums of `range` over the members end on all of them.
int direct_all_reduce(CollectiveBuilder& builder, const Members& members, ElementRange range,
                      int round);
int halving_all_reduce(CollectiveBuilder& builder, const Members& members, ElementRange range,
                       int round);

// ---- trees: chunks follow each other, one a round

/// Levels of the sum tree over `members` leaves.
int binomial_levels(size_t members);

/// Chunk c is complete at members[root] after round + binomial_levels + c rounds. Along the sum
/// tree; a node is held by its lowest member, or by the root where that is one of its members.
void binomial_reduce(CollectiveBuilder& builder, const Members& members, int root,
                     const Slices& chunks, int round);
void binomial_broadcast(CollectiveBuilder& builder, const Members& members, int root,
                        const Slices& chunks, int round);

/// members[0] deals out the slices, half of those that a member still has at a time.
int binomial_scatter(CollectiveBuilder& builder, const Members& members, const Slices& slices,
                     int round);

/// A balanced binary tree over `members`, numbered in order: those at even places are leaves.
///
///   6 members:       3              height: the binary logarithm of their number, rounded down
///                  /   \            .
///                 1     5
///                / \   /
///               0   2 4
void tree_all_reduce(CollectiveBuilder& builder, const Members& members, const Slices& chunks,
                     int round);

}  // namespace lockstep::plan::detail
