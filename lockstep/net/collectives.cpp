// Gathers, broadcast, all-to-all, barrier: moves without arithmetic.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "lockstep/base/hash.h"
#include "lockstep/base/str.h"
#include "lockstep/net/group_core.h"
#include "lockstep/net/plan_runner.h"
#include "lockstep/net/staging.h"

namespace lockstep::net {
namespace {

void copy(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

/// A broadcast from here on is worth the work of two cores.
constexpr int64_t kSharedCopyBytes = 256 * KiB;

void check_count(const char* what, int64_t count) {
  if (count < 0) throw UsageError(base::str(what, ": a count of ", count, " elements"));
}

void check_counts(const char* what, std::span<const int64_t> counts, int ranks) {
  if (static_cast<int>(counts.size()) != ranks) {
    throw UsageError(
        base::str(what, ": ", counts.size(), " counts for ", ranks, " ranks; pass one a rank"));
  }
  for (const int64_t count : counts) check_count(what, count);
}

void check_operator(const char* what, DType type, ReduceOp op) {
  if (op != ReduceOp::average || is_floating(type)) return;
  throw UsageError(base::str(what, ": an average of ", name_of(type),
                             " is none; sum them and divide, or convert to float32 before."));
}

}  // namespace

void Group::all_reduce(void* data, int64_t count, DType type, ReduceOp op) {
  check_count("all_reduce", count);
  check_operator("all_reduce", type, op);
  const Term mine{{impl_->rank, impl_->rank + 1}, data};
  impl_->reduce_to_all(std::span(&mine, 1), 0, data, count, type, op);
}

namespace {

void check_terms(const char* what, std::span<const Term> terms, int leaves, DType type) {
  if (leaves < 1) throw UsageError(base::str(what, ": ", leaves, " leaves; needs one or more"));
  if (type != DType::f32 && type != DType::f64) {
    throw UsageError(
        base::str(what, ": partial sums travel as float32 or float64, not ", name_of(type)));
  }
  // Refused here, before any byte moves: what only this rank's list can show to be wrong.
  std::vector<plan::LeafRange> ranges;
  for (const Term& term : terms) ranges.push_back(term.leaves);
  plan::evaluation(leaves, ranges);
}

}  // namespace

void Group::all_reduce_terms(std::span<const Term> terms, int leaves, void* result, int64_t count,
                             DType type) {
  check_count("all_reduce_terms", count);
  check_terms("all_reduce_terms", terms, leaves, type);
  impl_->reduce_to_all(terms, leaves, result, count, type, ReduceOp::sum);
}

void Group::reduce_scatter(const void* in, void* out, std::span<const int64_t> counts, DType type,
                           ReduceOp op) {
  check_counts("reduce_scatter", counts, size());
  check_operator("reduce_scatter", type, op);
  const Term mine{{impl_->rank, impl_->rank + 1}, in};
  impl_->reduce_to_owners(std::span(&mine, 1), 0, out, counts, type, op);
}

void Group::reduce_scatter_terms(std::span<const Term> terms, int leaves, void* out,
                                 std::span<const int64_t> counts, DType type) {
  check_counts("reduce_scatter_terms", counts, size());
  check_terms("reduce_scatter_terms", terms, leaves, type);
  impl_->reduce_to_owners(terms, leaves, out, counts, type, ReduceOp::sum);
}

void Group::all_gather(const void* in, void* out, std::span<const int64_t> counts, DType type) {
  check_counts("all_gather", counts, size());
  Impl& g = *impl_;
  Impl::Call call(g, Operation::all_gather);
  const int64_t width = width_of(type);
  uint64_t hash = 0;
  for (const int64_t count : counts) hash = base::mix64(hash ^ static_cast<uint64_t>(count));
  const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const plan::Algorithm algorithm = g.algorithm_for(plan::Collective::all_gather, total * width);
  Descriptor& mine = g.prepare({.operation = Operation::all_gather,
                                .count = total,
                                .type = type,
                                .algorithm = algorithm,
                                .counts_hash = hash});
  if (g.is_plan(algorithm)) {
    g.meet(mine);
    g.runner().all_gather(algorithm, in, out, counts, type, call.entry());
    return;
  }
  g.offer(mine, in, counts[g.rank] * width);
  g.meet(mine);

  char* const to = static_cast<char*>(out);
  const int64_t before =
      std::accumulate(counts.begin(), counts.begin() + g.rank, int64_t{0}) * width;
  if (in != to + before && counts[g.rank] > 0) {
    std::memmove(to + before, in, static_cast<size_t>(counts[g.rank] * width));
  }
  g.expect_peers_memory();
  if (!g.everyone_reachable()) {
    staged_gather(g, in, out, counts, width, call.entry());
    return;
  }
  int64_t start = before;
  for (int i = 1; i < g.size(); ++i) {
    // Each rank begins with another peer, so that they do not all read the same memory.
    const int p = (g.rank + i) % g.size();
    start = p == 0 ? 0 : start + counts[p - 1] * width;
    copy(to + start, g.offered_by(p), counts[p] * width);
    call.entry().bytes += counts[p] * width;
  }
  if (!g.everyone_inlined()) g.step();
}

void Group::broadcast(void* data, int64_t count, DType type, int root) {
  check_count("broadcast", count);
  if (root < 0 || root >= size()) {
    throw UsageError(base::str("broadcast: root ", root, " is not among the ", size(),
                               " ranks of \"", name(), "\""));
  }
  Impl& g = *impl_;
  Impl::Call call(g, Operation::broadcast);
  const int64_t bytes = count * width_of(type);
  const plan::Algorithm algorithm = g.algorithm_for(plan::Collective::broadcast, bytes);
  Descriptor& mine = g.prepare({.operation = Operation::broadcast,
                                .count = count,
                                .type = type,
                                .root = root,
                                .algorithm = algorithm});
  if (g.is_plan(algorithm)) {
    g.meet(mine);
    g.runner().broadcast(algorithm, data, count, type, root, call.entry());
    return;
  }
  if (bytes <= plan::kInlineBytes) {
    if (g.rank == root) g.offer(mine, data, bytes);
    g.meet_root(mine);
    if (g.rank == root) return;
    copy(data, g.came_with(root).inline_data(), bytes);
    call.entry().bytes += bytes;
    return;
  }
  if (g.rank == root) {
    g.offer(mine, data, bytes);
  } else if (bytes >= kSharedCopyBytes) {
    mine.out = g.address_of(data, bytes);
  }
  g.meet(mine);

  g.expect_peers_memory();
  const char* from = g.offered_by(root);
  if (from == nullptr) {
    std::vector<int64_t> counts(static_cast<size_t>(size()));
    counts[root] = count;
    staged_gather(g, data, data, counts, width_of(type), call.entry());
    return;
  }
  // Of a long message the root stores the last share where readers let it, as it would be idle.
  const int64_t pulled = count / size() * (size() - 1) * width_of(type);
  const auto is_stored_to = [&](int p) { return p != root && g.came_with(p).out != kNotReachable; };
  if (g.rank == root) {
    for (int i = 1; i < size(); ++i) {
      const int p = (root + i) % size();
      if (!is_stored_to(p)) continue;
      copy(g.at(g.came_with(p).out) + pulled, from + pulled, bytes - pulled);
      call.entry().bytes += bytes - pulled;
    }
  } else {
    const int64_t mine_to_copy = is_stored_to(g.rank) ? pulled : bytes;
    copy(data, from, mine_to_copy);
    call.entry().bytes += mine_to_copy;
  }
  // The root waits for all who read its memory; they wait for what it stores.
  if (g.rank == root) {
    g.step();
  } else {
    g.say_done();
    if (is_stored_to(g.rank)) g.wait_for(root, g.lines[root]->steps, g.steps);
  }
}

void Group::all_to_all(const void* in, std::span<const int64_t> send_counts, void* out,
                       std::span<const int64_t> recv_counts, DType type) {
  check_counts("all_to_all", send_counts, size());
  check_counts("all_to_all", recv_counts, size());
  Impl& g = *impl_;
  Impl::Call call(g, Operation::all_to_all);
  const int64_t width = width_of(type);
  const int n = size();
  // What the others send is not known yet: all must choose alike, so the table's bytes do not
  // count.
  const plan::Algorithm algorithm = g.algorithm_for(plan::Collective::all_to_all, 0);
  Descriptor& mine =
      g.prepare({.operation = Operation::all_to_all, .type = type, .algorithm = algorithm});
  g.announce_counts(mine, send_counts, recv_counts);
  if (!g.is_plan(algorithm)) {
    g.offer(mine, in, std::accumulate(send_counts.begin(), send_counts.end(), int64_t{0}) * width);
  }
  g.meet(mine);

  g.compare_counts(type);
  if (g.is_plan(algorithm)) {
    std::vector<std::vector<int64_t>> splits(static_cast<size_t>(n));
    for (int p = 0; p < n; ++p) {
      for (int q = 0; q < n; ++q) splits[p].push_back(g.sent(p, q));
    }
    g.runner().all_to_all(algorithm, in, out, splits, type, call.entry());
    return;
  }
  const auto sent_before = [&](int from) {
    int64_t before = 0;
    for (int q = 0; q < g.rank; ++q) before += g.sent(from, q);
    return before * width;
  };
  char* const to = static_cast<char*>(out);
  const int64_t own_start =
      std::accumulate(recv_counts.begin(), recv_counts.begin() + g.rank, int64_t{0}) * width;
  copy(to + own_start, static_cast<const char*>(in) + sent_before(g.rank),
       send_counts[g.rank] * width);
  g.expect_peers_memory();
  if (!g.everyone_reachable()) {
    staged_all_to_all(g, in, send_counts, out, recv_counts, width, call.entry());
    return;
  }
  int64_t start = own_start;
  for (int i = 1; i < n; ++i) {
    const int p = (g.rank + i) % n;
    start = p == 0 ? 0 : start + recv_counts[p - 1] * width;
    if (recv_counts[p] > 0) {
      copy(to + start, g.offered_by(p) + sent_before(p), recv_counts[p] * width);
    }
    call.entry().bytes += recv_counts[p] * width;
  }
  if (!g.everyone_inlined()) g.step();
}

void Group::Impl::announce_counts(Descriptor& mine, std::span<const int64_t> sends,
                                  std::span<const int64_t> receives) {
  const auto is_first = [&](int64_t count) { return count == sends[0]; };
  if (std::all_of(sends.begin(), sends.end(), is_first) &&
      std::all_of(receives.begin(), receives.end(), is_first)) {
    mine.out = sends[0];  // no address here
    return;
  }
  mine.items = 2 * size();
  auto* list = static_cast<int64_t*>(list_room(mine, mine.items * int64_t{sizeof(int64_t)}));
  std::copy(sends.begin(), sends.end(), list);
  std::copy(receives.begin(), receives.end(), list + size());
}

int64_t Group::Impl::sent(int from, int to) const {
  const Descriptor& d = came_with(from);
  return d.items == 0 ? d.out : reinterpret_cast<const int64_t*>(at(d.list))[to];
}

int64_t Group::Impl::wanted(int to, int from) const {
  const Descriptor& d = came_with(to);
  return d.items == 0 ? d.out : reinterpret_cast<const int64_t*>(at(d.list))[size() + from];
}

void Group::Impl::compare_counts(DType type) {
  for (int p = 0; p < size(); ++p) {
    if (sent(p, rank) != wanted(rank, p)) {
      fail(base::str("rank ", p, " sends ", sent(p, rank), " ", name_of(type),
                     " to this rank, which expects ", wanted(rank, p), "."));
    }
    if (wanted(p, rank) != sent(rank, p)) {
      fail(base::str("rank ", p, " expects ", wanted(p, rank), " ", name_of(type),
                     " from this rank, which sends ", sent(rank, p), "."));
    }
  }
  for (int p = 0; p < size(); ++p) {
    for (int q = 0; q < size(); ++q) {
      if (sent(p, q) == wanted(q, p)) continue;
      fail(base::str("rank ", p, " sends ", sent(p, q), " ", name_of(type), " to rank ", q,
                     ", which expects ", wanted(q, p), "."));
    }
  }
}

void Group::barrier() {
  Impl::Call call(*impl_, Operation::barrier);
  impl_->meet(impl_->prepare({.operation = Operation::barrier}));
}

std::vector<std::string> Group::Impl::gather_text(Operation operation, const std::string& mine,
                                                  uint64_t hash) {
  Call call(*this, operation);
  Descriptor& d = prepare({.operation = operation, .counts_hash = hash});
  const auto length = static_cast<int64_t>(mine.size());
  if (length > kBounceBytes) {
    // Text is seldom long: it is copied whole rather than staged.
    char* text = bounce(length);
    std::memcpy(text, mine.data(), mine.size());
    d.inlined = 0;
    d.in = address_of(text, length);
  } else {
    offer(d, mine.data(), length);
  }
  d.out = length;  // no address here: how long the text is
  meet(d, mine);
  pass(Point::gather_text);
  expect_peers_memory();
  std::vector<std::string> texts;
  for (int p = 0; p < size(); ++p) {
    if (p == rank) {
      texts.push_back(mine);
    } else {
      texts.emplace_back(offered_by(p), static_cast<size_t>(came_with(p).out));
      call.entry().bytes += came_with(p).out;
    }
  }
  if (!everyone_inlined()) step();
  return texts;
}

}  // namespace lockstep::net
