#include "lockstep/plan/sum_tree.h"

#include <cstddef>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::plan {
namespace {

std::string text(LeafRange range) { return base::str("[", range.lo, ",", range.hi, ")"); }

void collect(LeafRange node, LeafRange held, std::vector<LeafRange>& found) {
  if (node.hi <= held.lo || held.hi <= node.lo) return;
  if (held.contains(node)) {
    found.push_back(node);
    return;
  }
  const int mid = split(node.lo, node.hi);
  collect({node.lo, mid}, held, found);
  collect({mid, node.hi}, held, found);
}

/// Adds up the terms [first, last), all of which lie in `node`, into slot `first`.
void evaluate(LeafRange node, const std::vector<LeafRange>& terms, size_t first, size_t last,
              std::vector<AddStep>& steps) {
  if (first == last || terms[first] == node) return;
  const int mid = split(node.lo, node.hi);
  size_t middle = first;
  while (middle < last && terms[middle].hi <= mid) ++middle;
  if (middle < last && terms[middle].lo < mid) {
    throw UsageError(base::str("canonical sum: leaves ", text(terms[middle]),
                               " are no node of the sum tree, which divides ", text(node), " at ",
                               mid, ".\n  Send the maximal whole subtrees of the leaves held ",
                               "(plan::maximal_subtrees)."));
  }
  evaluate({node.lo, mid}, terms, first, middle, steps);
  evaluate({mid, node.hi}, terms, middle, last, steps);
  // The first term of a sum is a copy: an absent half adds nothing, not even a zero.
  if (first < middle && middle < last) {
    steps.push_back({static_cast<int>(first), static_cast<int>(middle)});
  }
}

}  // namespace

std::vector<LeafRange> maximal_subtrees(int leaves, LeafRange held) {
  LOCKSTEP_ASSERT(held.size() <= 0 || (held.lo >= 0 && held.hi <= leaves),
                  "the leaves held must be leaves of the tree");
  std::vector<LeafRange> found;
  if (held.size() > 0) collect({0, leaves}, held, found);
  return found;
}

std::vector<AddStep> evaluation(int leaves, const std::vector<LeafRange>& terms) {
  for (size_t i = 0; i < terms.size(); ++i) {
    const LeafRange term = terms[i];
    if (term.size() < 1 || term.lo < 0 || term.hi > leaves) {
      throw UsageError(base::str("canonical sum: leaves ", text(term),
                                 " are not in the sum tree over [0,", leaves, ")."));
    }
    if (i > 0 && term.lo < terms[i - 1].hi) {
      throw UsageError(base::str("canonical sum: leaves ", text(terms[i - 1]), " and ", text(term),
                                 " overlap or come out of order; each leaf counts once."));
    }
  }
  std::vector<AddStep> steps;
  evaluate({0, leaves}, terms, 0, terms.size(), steps);
  return steps;
}

}  // namespace lockstep::plan
