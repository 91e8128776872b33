#include "lockstep/plan/write_share.h"

#include <algorithm>

#include "lockstep/plan/norm_chunks.h"

namespace lockstep::plan {
namespace {

/// The chunk border at or before `element` of a piece that begins at `lo`.
int64_t border(int64_t element, int64_t lo, int64_t hi) {
  if (element >= hi) return hi;
  return std::max(lo, element / kNormChunk * kNormChunk);
}

}  // namespace

std::vector<Piece> write_share(const std::vector<Piece>& pieces, int writer, int writers) {
  int64_t total = 0;
  for (const Piece& piece : pieces) total += piece.size();
  const int64_t first = total * writer / writers;  // of all elements, back to back
  const int64_t last = total * (writer + 1) / writers;
  std::vector<Piece> share;
  int64_t at = 0;
  for (const Piece& piece : pieces) {
    Piece part = piece;
    if (first > at) part.lo = border(piece.lo + (first - at), piece.lo, piece.hi);
    if (last < at + piece.size()) part.hi = border(piece.lo + (last - at), piece.lo, piece.hi);
    part.in_unit += part.lo - piece.lo;
    if (part.lo < part.hi) share.push_back(part);
    at += piece.size();
  }
  return share;
}

}  // namespace lockstep::plan
