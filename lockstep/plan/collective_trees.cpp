// Trees: the sum tree itself (binomial), and balanced binary trees, one or two.
//
// In a pipeline of chunks, chunk c is in every place one round behind chunk c - 1.
#include <algorithm>
#include <bit>
#include <utility>

#include "lockstep/plan/detail/collective_parts.h"

namespace lockstep::plan::detail {
namespace {

int rank_of(const Members& members, int index) { return members[static_cast<size_t>(index)]; }

/// Calls visit(low, high) with the holders of the two halves of every node of `level` in the sum
/// tree: nodes of 2^(level + 1) leaves, the last one shorter.
template <class Visit>
void for_each_merge(int num_members, int root, int level, const Visit& visit) {
  const int half = 1 << level;
  const auto holder = [root](int lo, int hi) { return lo <= root && root < hi ? root : lo; };
  for (int lo = 0; lo + half < num_members; lo += 2 * half) {
    visit(holder(lo, lo + half), holder(lo + half, lo + 2 * half));
  }
}

/// A balanced binary tree whose nodes are numbered in order.
struct InOrderTree {
  struct Node {
    int index;
    int depth;
    int left = -1;  // -1: none
    int right = -1;
  };
  std::vector<Node> nodes;  // parents before their children
  int height = 0;

  explicit InOrderTree(int size) { plant(0, size, 0); }

 private:
  /// Plants the nodes lo .. hi - 1 and returns their root. Its left subtree is complete: leaves
  /// are at even places.
  int plant(int lo, int hi, int depth) {
    if (lo == hi) return -1;
    const int root = lo + static_cast<int>(std::bit_floor(static_cast<unsigned>(hi - lo))) - 1;
    height = std::max(height, depth);
    const size_t at = nodes.size();
    nodes.push_back({root, depth});
    const int left = plant(lo, root, depth + 1);
    const int right = plant(root + 1, hi, depth + 1);
    nodes[at].left = left;
    nodes[at].right = right;
    return root;
  }
};

/// Both children's chunks arrive and are added: (left + own) + right.
void gather_children(CollectiveBuilder& builder, const Members& members,
                     const InOrderTree::Node& node, const Place& chunk, int round) {
  const int rank = rank_of(members, node.index);
  const int64_t size = chunk.range.size();
  std::vector<Place> sources;
  std::vector<AddStep> additions{{0, 1}};
  const auto receive = [&](int child, int64_t slot) {
    sources.push_back(scratch(slot * size, size));
    builder.message(round, rank_of(members, child), chunk, rank, sources.back());
  };
  receive(node.left, 0);
  sources.push_back(chunk);
  if (node.right >= 0) {
    receive(node.right, 1);
    additions.push_back({0, 2});
  }
  builder.local(round, rank, {chunk, std::move(sources), std::move(additions)});
}

}  // namespace

int binomial_levels(size_t members) { return static_cast<int>(std::bit_width(members - 1)); }

void binomial_reduce(CollectiveBuilder& builder, const Members& members, int root,
                     const Slices& chunks, int round) {
  const auto num_members = static_cast<int>(members.size());
  const int levels = binomial_levels(members.size());
  // In one round a member may receive chunks of as many consecutive levels as there are chunks.
  const auto slots = static_cast<int>(chunks.size());
  const int64_t slot_size = chunks[0].size();
  for (size_t c = 0; c < chunks.size(); ++c) {
    for (int level = 0; level < levels; ++level) {
      const int now = round + static_cast<int>(c) + level;
      const Place chunk{kResult, chunks[c]};
      const Place arrived = scratch(level % slots * slot_size, chunks[c].size());
      for_each_merge(num_members, root, level, [&](int low, int high) {
        const bool upwards = high == root;
        const int to = rank_of(members, upwards ? high : low);
        builder.message(now, rank_of(members, upwards ? low : high), chunk, to, arrived);
        builder.add(now, to, chunk, upwards ? arrived : chunk, upwards ? chunk : arrived);
      });
    }
  }
}

void binomial_broadcast(CollectiveBuilder& builder, const Members& members, int root,
                        const Slices& chunks, int round) {
  const auto num_members = static_cast<int>(members.size());
  const int levels = binomial_levels(members.size());
  for (size_t c = 0; c < chunks.size(); ++c) {
    for (int level = levels - 1; level >= 0; --level) {
      const int now = round + static_cast<int>(c) + (levels - 1 - level);
      for_each_merge(num_members, root, level, [&](int low, int high) {
        const bool upwards = high == root;
        builder.message(now, rank_of(members, upwards ? high : low),
                        rank_of(members, upwards ? low : high), chunks[c]);
      });
    }
  }
}

int binomial_scatter(CollectiveBuilder& builder, const Members& members, const Slices& slices,
                     int round) {
  const auto num_members = static_cast<int>(members.size());
  for (int level = binomial_levels(members.size()) - 1; level >= 0; --level, ++round) {
    for_each_merge(num_members, 0, level, [&](int low, int high) {
      const int last = std::min(num_members, high + (1 << level)) - 1;
      const ElementRange dealt{slices[static_cast<size_t>(high)].lo,
                               slices[static_cast<size_t>(last)].hi};
      builder.message(round, rank_of(members, low), rank_of(members, high), dealt);
    });
  }
  return round;
}

void tree_all_reduce(CollectiveBuilder& builder, const Members& members, const Slices& chunks,
                     int round) {
  const InOrderTree tree(static_cast<int>(members.size()));
  for (size_t c = 0; c < chunks.size(); ++c) {
    const int first = round + static_cast<int>(c);
    for (const InOrderTree::Node& node : tree.nodes) {
      if (node.left < 0) continue;
      const int up = first + tree.height - 1 - node.depth;
      const int down = first + tree.height + node.depth;
      gather_children(builder, members, node, {kResult, chunks[c]}, up);
      for (const int child : {node.left, node.right}) {
        if (child < 0) continue;
        builder.message(down, rank_of(members, node.index), rank_of(members, child), chunks[c]);
      }
    }
  }
}

}  // namespace lockstep::plan::detail
