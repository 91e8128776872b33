// All-to-all: direct and pairwise for any splits, and Bruck's way in log2 N rounds for equal ones.
#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/plan/detail/collective_parts.h"

namespace lockstep::plan {
namespace {

using Splits = std::vector<std::vector<int64_t>>;
using detail::CollectiveBuilder;
using detail::scratch;
using detail::Slices;

/// Where block (from, to) lies in the sender's term buffer and in the receiver's result.
struct Blocks {
  std::vector<Slices> out;  // [from][to]
  std::vector<Slices> in;   // [to][from]

  Place sent(size_t from, size_t to) const { return {kFirstTerm, out[from][to]}; }
  Place received(size_t from, size_t to) const { return {kResult, in[to][from]}; }
};

Blocks lay_out(const Splits& splits) {
  const size_t n = splits.size();
  Blocks blocks;
  for (size_t rank = 0; rank < n; ++rank) {
    if (splits[rank].size() != n) {
      throw UsageError(base::str("all_to_all: rank ", rank, " has ", splits[rank].size(),
                                 " splits in a group of ", n, ".\n  One for each rank is needed."));
    }
    blocks.out.push_back(detail::slices_of(splits[rank]));
    std::vector<int64_t> received;
    for (size_t from = 0; from < n; ++from) received.push_back(splits[from].at(rank));
    blocks.in.push_back(detail::slices_of(received));
  }
  return blocks;
}

/// `in_turn`: one partner a round; else all at once.
void write_exchange(CollectiveBuilder& builder, const Blocks& blocks, bool in_turn) {
  const size_t n = blocks.out.size();
  for (size_t rank = 0; rank < n; ++rank) {
    builder.copy(0, static_cast<int>(rank), blocks.received(rank, rank), blocks.sent(rank, rank));
  }
  for (size_t distance = 1; distance < n; ++distance) {
    for (size_t from = 0; from < n; ++from) {
      const size_t to = (from + distance) % n;
      builder.message(in_turn ? static_cast<int>(distance) - 1 : 0, static_cast<int>(from),
                      blocks.sent(from, to), static_cast<int>(to), blocks.received(from, to));
    }
  }
}

int64_t equal_split(const Splits& splits) {
  const int64_t block = splits[0][0];
  for (size_t from = 0; from < splits.size(); ++from) {
    for (size_t to = 0; to < splits.size(); ++to) {
      if (splits[from][to] == block) continue;
      throw UsageError(base::str("all_to_all: bruck moves equal splits; rank 0 keeps ", block,
                                 " elements, but rank ", from, " sends ", splits[from][to],
                                 " to rank ", to, ".\n  Use direct or pairwise."));
    }
  }
  return block;
}

/// Scratch of a rank: | blocks by distance to their receiver | packed to send | arrived |
class Bruck {
 public:
  Bruck(CollectiveBuilder& builder, size_t ranks, int64_t block)
      : builder_(builder), n_(ranks), block_(block) {}

  void write(const Blocks& blocks) const {
    for (size_t rank = 0; rank < n_; ++rank) {
      for (size_t distance = 0; distance < n_; ++distance) {
        builder_.copy(0, static_cast<int>(rank), blocks_at(distance, 1),
                      blocks.sent(rank, (rank + distance) % n_));
      }
    }
    // A block at distance d travels in the steps of the bits of d.
    int round = 1;
    for (size_t step = 1; step < n_; step *= 2, ++round) exchange(step, round);
    for (size_t rank = 0; rank < n_; ++rank) {
      for (size_t distance = 0; distance < n_; ++distance) {
        builder_.copy(round - 1, static_cast<int>(rank),
                      blocks.received((rank + n_ - distance) % n_, rank), blocks_at(distance, 1));
      }
    }
  }

 private:
  Place blocks_at(size_t first, size_t blocks) const {
    return scratch(static_cast<int64_t>(first) * block_, static_cast<int64_t>(blocks) * block_);
  }

  /// Blocks whose distance has bit `step` are packed after the round before, travel `step` ranks
  /// ahead, and take the places of those that left.
  void exchange(size_t step, int round) const {
    const size_t room = n_ / 2;  // at most as many distances have a certain bit
    size_t packed = 0;
    for (size_t first = step; first < n_; first += 2 * step) {
      const size_t run = std::min(step, n_ - first);
      for (size_t rank = 0; rank < n_; ++rank) {
        const Place here = blocks_at(first, run);
        builder_.copy(round - 1, static_cast<int>(rank), blocks_at(n_ + packed, run), here);
        builder_.copy(round, static_cast<int>(rank), here, blocks_at(n_ + room + packed, run));
      }
      packed += run;
    }
    for (size_t from = 0; from < n_; ++from) {
      builder_.message(round, static_cast<int>(from), blocks_at(n_, packed),
                       static_cast<int>((from + step) % n_), blocks_at(n_ + room, packed));
    }
  }

  CollectiveBuilder& builder_;
  size_t n_;
  int64_t block_;
};

}  // namespace

CollectivePlan plan_all_to_all(Algorithm algorithm, const Splits& splits) {
  detail::expect_algorithm(Collective::all_to_all, algorithm);
  const auto ranks = static_cast<int>(splits.size());
  const std::vector<int> members = detail::all_ranks(ranks);
  const Blocks blocks = lay_out(splits);

  CollectiveBuilder builder(Collective::all_to_all, algorithm, detail::one_term_a_rank(ranks));
  for (size_t rank = 0; rank < splits.size(); ++rank) {
    builder.given(members[rank], {{kFirstTerm, {0, blocks.out[rank].back().hi}}, members[rank], 0});
    for (size_t from = 0; from < splits.size(); ++from) {
      builder.promised(members[rank], {blocks.received(from, rank), members[from],
                                       blocks.sent(from, rank).range.lo});
    }
  }
  if (algorithm == Algorithm::bruck) {
    Bruck(builder, splits.size(), equal_split(splits)).write(blocks);
  } else {
    write_exchange(builder, blocks, /*in_turn=*/algorithm == Algorithm::pairwise);
  }
  return builder.take();
}

}  // namespace lockstep::plan
