// Who writes what of a checkpoint.

#include "lockstep/plan/write_share.h"

#include <numeric>

#include "tests/plan/property.h"

namespace lockstep::plan {
namespace {

RC_GTEST_PROP(WriteShare, EveryElementOnceAndEvenly, ()) {
  // Pieces as a rank owns them: runs of parameters that begin and end at chunks or at the ends.
  std::vector<Piece> pieces;
  const int count = *rc::gen::inRange(0, 8);
  int64_t in_unit = 0, total = 0;
  for (int param = 0; param < count; ++param) {
    const int64_t lo = 256 * *rc::gen::inRange<int64_t>(0, 4);
    const int64_t size = *rc::gen::inRange<int64_t>(1, 5000);
    pieces.push_back({.param = param, .lo = lo, .hi = lo + size, .unit = 3, .in_unit = in_unit});
    in_unit += size + 7;
    total += size;
  }
  const int writers = *rc::gen::inRange(1, 13);
  size_t piece = 0;
  int64_t next = pieces.empty() ? 0 : pieces[0].lo;
  for (int writer = 0; writer < writers; ++writer) {
    int64_t own = 0;
    for (const Piece& part : write_share(pieces, writer, writers)) {
      RC_ASSERT(piece < pieces.size());
      const Piece& from = pieces[piece];
      RC_ASSERT(part.param == from.param);
      RC_ASSERT(part.unit == from.unit);
      RC_ASSERT(part.lo == next);
      RC_ASSERT(part.hi > part.lo);
      RC_ASSERT(part.in_unit - from.in_unit == part.lo - from.lo);
      RC_ASSERT(part.hi == from.hi || part.hi % 256 == 0);
      own += part.size();
      next = part.hi;
      if (part.hi == from.hi && ++piece < pieces.size()) next = pieces[piece].lo;
    }
    // A cut steps back to its chunk's border: by less than 256 elements.
    RC_ASSERT(std::abs(own - total / writers) <= 256);
  }
  RC_ASSERT(piece == pieces.size());
}

TEST(WriteShare, OneWriterWritesAll) {
  const std::vector<Piece> pieces = {{.param = 0, .lo = 0, .hi = 700},
                                     {.param = 2, .lo = 256, .hi = 300}};
  EXPECT_EQ(write_share(pieces, 0, 1), pieces);
  EXPECT_TRUE(write_share({}, 0, 1).empty());
}

}  // namespace
}  // namespace lockstep::plan
