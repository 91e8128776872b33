#include "lockstep/net/guard.h"

#include "lockstep/base/str.h"
#include "lockstep/net/region.h"

namespace lockstep::net {

std::string describe(Operation operation, int64_t count, DType type, ReduceOp reduce_op, int root) {
  switch (operation) {
    case Operation::barrier:
    case Operation::subgroup:
    case Operation::gather_text:
      return name_of(operation);
    default:
      break;
  }
  std::string text = name_of(operation);
  if (operation == Operation::all_to_all) {
    text += base::str(" of ", name_of(type));  // counts go by pairs of ranks
  } else {
    text += base::str(" of ", count, " ", name_of(type));
  }
  if (operation == Operation::all_reduce || operation == Operation::reduce_scatter) {
    text += base::str(" (", name_of(reduce_op), ")");
  }
  if (operation == Operation::broadcast && root >= 0) text += base::str(" from rank ", root);
  return text;
}

std::string describe(const Descriptor& d) {
  std::string text = describe(d.operation, d.count, d.type, d.reduce_op, d.root);
  if (d.leaves > 0) text += base::str(" over ", d.leaves, " leaves");
  if (d.algorithm != plan::Algorithm::direct) text += ", " + plan::name_of(d.algorithm);
  return text;
}

std::string mismatch_text(int peer, const Descriptor& theirs, const Descriptor& ours) {
  std::string text = base::str("rank ", peer, " came with ", describe(theirs), ", this rank with ",
                               describe(ours), ".");
  if (describe(theirs) == describe(ours)) {
    text += ours.operation == Operation::subgroup
                ? "\n  They ask for groups of different names."
                : "\n  The counts by rank differ: every rank must pass the same list.";
  }
  return text + "\n  All ranks of a group must make the same calls in the same order.";
}

}  // namespace lockstep::net
