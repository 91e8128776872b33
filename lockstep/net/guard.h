/// Whether two ranks came to the same collective.
#pragma once

#include <string>

#include "lockstep/net/control.h"

namespace lockstep::net {

/// "all_reduce of 100 float32 (sum)", "broadcast of 1 int64 from rank 0", "barrier".
std::string describe(const Descriptor& descriptor);

/// Equal operation, type, operator, root, algorithm, counts and leaves.
inline bool same_call(const Descriptor& a, const Descriptor& b) {
  return a.operation == b.operation && a.type == b.type && a.reduce_op == b.reduce_op &&
         a.root == b.root && a.algorithm == b.algorithm && a.count == b.count &&
         a.counts_hash == b.counts_hash && a.leaves == b.leaves;
}

/// "rank 2 came with reduce_scatter of 200 float32 (sum), this rank with ..."
std::string mismatch_text(int peer, const Descriptor& theirs, const Descriptor& ours);

}  // namespace lockstep::net
