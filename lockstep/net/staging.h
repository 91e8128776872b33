/// Collectives over memory that peers cannot reach: through a ring of chunks in the shared heap.
///
///   pass c:   copy chunk c in   |   use chunk c - 1   |   copy chunk c - 2 out   |   meet
///
/// The ring is 2 MiB: a slot is written again only when the line has left the nearest caches of the
/// core that read it (a small double buffer runs at a tenth of the speed on some processors), and
/// what was copied in is still near when it is copied out.
#pragma once

#include <span>

#include "lockstep/net/group_core.h"

namespace lockstep::net {

/// This rank's ring and the view of its peers' rings. All ranks construct it alike, after meeting.
class Staging {
 public:
  /// `parts` pieces a chunk, each of up to chunk() elements of a piece `longest` elements long.
  Staging(Group::Impl& group, int64_t parts, int64_t width, int64_t longest);

  int64_t chunk() const { return chunk_; }
  int64_t passes() const { return passes_; }  // chunks in the longest piece
  char* mine(int64_t pass, int64_t part) const { return place(own_, pass, part); }
  char* of(int peer, int64_t pass, int64_t part) const;

  /// Elements [lo, hi) of chunk `pass` of a piece of `count` elements; empty past its end.
  plan::ElementRange range(int64_t pass, int64_t count) const;

  /// Runs the three phases over all chunks; each gets the number of its chunk.
  template <class In, class Use, class Out>
  void run(In&& copy_in, Use&& use, Out&& copy_out) {
    for (int64_t pass = 0; pass < passes_ + 2; ++pass) {
      if (pass < passes_) copy_in(pass);
      if (pass >= 1 && pass - 1 < passes_) use(pass - 1);
      if (pass >= 2) copy_out(pass - 2);
      group_.pass(Point::staging);
      group_.step();
    }
  }

 private:
  char* place(char* ring, int64_t pass, int64_t part) const;

  Group::Impl& group_;
  int64_t width_;
  int64_t chunk_;
  int64_t passes_;
  int64_t slot_bytes_;
  char* own_;
};

/// As reduce_to_all and reduce_to_owners; a null pointer in `found` is a term out of reach.
void staged_reduce_to_all(Group::Impl& group, const SumRecipe& recipe, std::span<const Term> terms,
                          std::span<const void* const> found, void* result, int64_t count,
                          DType type, ReduceOp op, LedgerEntry& entry);
void staged_reduce_to_owners(Group::Impl& group, const SumRecipe& recipe,
                             std::span<const Term> terms, std::span<const void* const> found,
                             void* out, std::span<const int64_t> counts, DType type, ReduceOp op,
                             LedgerEntry& entry);

/// Rank p's piece of counts[p] elements goes to `out + before[p]` of every rank; a piece may be of
/// length 0 (broadcast: all but the root's).
void staged_gather(Group::Impl& group, const void* in, void* out, std::span<const int64_t> counts,
                   int64_t width, LedgerEntry& entry);
void staged_all_to_all(Group::Impl& group, const void* in, std::span<const int64_t> send_counts,
                       void* out, std::span<const int64_t> recv_counts, int64_t width,
                       LedgerEntry& entry);

}  // namespace lockstep::net
