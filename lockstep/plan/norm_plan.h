/// How norms are taken where ranks own pieces of parameters: each rank adds up the maximal whole
/// subtrees of its chunks (norm_chunks.h), the ranks exchange those of all sums at once, and each
/// adds them in the order of the trees. A norm has the bits of one rank that owns all.
///
/// Moves   8 bytes a node: at most 2 log2(chunks of a sum) for each run of chunks that a rank owns
#pragma once

#include <vector>

#include "lockstep/plan/norm_chunks.h"
#include "lockstep/plan/shard_layout.h"
#include "lockstep/plan/sum_tree.h"

namespace lockstep::plan {

struct NormPlan {
  NormChunks chunks;
  std::vector<std::vector<LeafRange>> nodes;  // by rank, of chunks, in rising order
  std::vector<int> place;  // of rank 0's nodes, then rank 1's...: their place in rising order
  std::vector<AddStep> additions;  // over the nodes in rising order
  std::vector<int> results;        // by sum: the place that ends with it; -1: nobody has any of it

  /// How many nodes each rank brings.
  std::vector<int64_t> counts() const;
};

NormPlan plan_norm(const ParamTable& table, const ShardLayout& layout,
                   NormSums sums = NormSums::whole);
/// The same where ranks hold parts of a model: `owned` are the pieces that each rank brings, of
/// parameters of `table`, which has those of all parts. Each element once.
NormPlan plan_norm(const ParamTable& table, const std::vector<std::vector<Piece>>& owned,
                   NormSums sums = NormSums::whole);

}  // namespace lockstep::plan
