#include "lockstep/net/staging.h"

#include <algorithm>
#include <cstring>

#include "lockstep/net/reduce_kernels.h"

namespace lockstep::net {
namespace {

constexpr int64_t kSlots = 8;
constexpr int64_t kSlotBytes = 256 * KiB;

void copy(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

std::vector<int64_t> starts_of(std::span<const int64_t> counts) {
  std::vector<int64_t> starts(counts.size());
  for (size_t p = 1; p < counts.size(); ++p) starts[p] = starts[p - 1] + counts[p - 1];
  return starts;
}

}  // namespace

Staging::Staging(Group::Impl& group, int64_t parts, int64_t width, int64_t longest)
    : group_(group), width_(width) {
  chunk_ = std::max<int64_t>(16, kSlotBytes / (parts * width) / 16 * 16);
  passes_ = (longest + chunk_ - 1) / chunk_;
  slot_bytes_ = parts * chunk_ * width;
  own_ = group.staging.at_least(group, kSlots * slot_bytes_);
  group.lines[group.rank]->staging.store(group.address_of(own_, 1), std::memory_order_relaxed);
}

char* Staging::place(char* ring, int64_t pass, int64_t part) const {
  return ring + pass % kSlots * slot_bytes_ + part * chunk_ * width_;
}

char* Staging::of(int peer, int64_t pass, int64_t part) const {
  // Published before the peer's first step, which this rank has waited for.
  return place(group_.at(group_.lines[peer]->staging.load(std::memory_order_relaxed)), pass, part);
}

plan::ElementRange Staging::range(int64_t pass, int64_t count) const {
  return {std::min(count, pass * chunk_), std::min(count, (pass + 1) * chunk_)};
}

namespace {

/// Both staged reductions. Owner p reduces elements [starts[p], starts[p] + counts[p]). A chunk has
/// a part for each term and each other owner; the owner stores the sum over the first term's part,
/// where the rank that copied the term in finds it: lines that were read a moment ago, and a third
/// less of the ring than with a part for results.
void staged_reduce(Group::Impl& group, const SumRecipe& recipe, std::span<const Term> terms,
                   std::span<const void* const> found, std::span<const int64_t> counts,
                   char* own_result, char* whole_result, DType type, ReduceOp op,
                   LedgerEntry& entry) {
  const int ranks = group.size();
  const int me = group.rank;
  const int64_t width = width_of(type);
  const std::vector<int64_t> starts = starts_of(counts);
  size_t most_terms = 1;  // the sum needs a part on a rank without terms, too
  for (const auto& held : recipe.terms_by_rank) most_terms = std::max(most_terms, held.size());
  const int64_t longest = *std::max_element(counts.begin(), counts.end());
  const int64_t parts = static_cast<int64_t>(most_terms) * std::max(1, ranks - 1);
  Staging ring(group, parts, width, longest);
  const auto part_of = [ranks](int64_t term, int holder, int owner) {
    return term * (ranks - 1) + owner - (owner > holder ? 1 : 0);
  };
  const bool in_reach = group.came_with(me).in != kNotReachable || group.came_with(me).inlined;

  std::vector<const void*> sources(recipe.sources.size());
  std::vector<void*> results;
  const auto copy_in = [&](int64_t pass) {
    if (in_reach) return;
    for (size_t k = 0; k < terms.size(); ++k) {
      for (int p = 0; p < ranks; ++p) {
        if (p == me) continue;
        const auto range = ring.range(pass, counts[p]);
        copy(ring.mine(pass, part_of(static_cast<int64_t>(k), me, p)),
             static_cast<const char*>(terms[k].data) + (starts[p] + range.lo) * width,
             range.size() * width);
      }
    }
  };
  const auto use = [&](int64_t pass) {
    const auto range = ring.range(pass, counts[me]);
    if (range.size() == 0) return;
    int64_t elsewhere = 0;
    for (size_t t = 0; t < recipe.sources.size(); ++t) {
      const auto& [holder, index] = recipe.sources[t];
      sources[t] = found[t] != nullptr
                       ? static_cast<const char*>(found[t]) + (starts[me] + range.lo) * width
                       : ring.of(holder, pass, part_of(index, holder, me));
      if (holder != me) ++elsewhere;
    }
    results.assign(1, own_result + range.lo * width);
    for (int p = 0; p < ranks && whole_result != nullptr; ++p) {
      if (p != me) results.push_back(ring.of(p, pass, part_of(0, p, me)));
    }
    reduce(type, op, sources, recipe.additions, results, range.size());
    entry.bytes += (elsewhere + static_cast<int64_t>(results.size()) - 1) * range.size() * width;
  };
  const auto copy_out = [&](int64_t pass) {
    for (int p = 0; p < ranks && whole_result != nullptr; ++p) {
      if (p == me) continue;
      const auto range = ring.range(pass, counts[p]);
      copy(whole_result + (starts[p] + range.lo) * width, ring.mine(pass, part_of(0, me, p)),
           range.size() * width);
    }
  };
  ring.run(copy_in, use, copy_out);
}

}  // namespace

void staged_reduce_to_all(Group::Impl& group, const SumRecipe& recipe, std::span<const Term> terms,
                          std::span<const void* const> found, void* result, int64_t count,
                          DType type, ReduceOp op, LedgerEntry& entry) {
  std::vector<int64_t> counts;
  for (int p = 0; p < group.size(); ++p) {
    counts.push_back(plan::slice_of(count, group.size(), p).size());
  }
  char* whole = static_cast<char*>(result);
  const int64_t start = plan::slice_of(count, group.size(), group.rank).lo;
  staged_reduce(group, recipe, terms, found, counts, whole + start * width_of(type), whole, type,
                op, entry);
}

void staged_reduce_to_owners(Group::Impl& group, const SumRecipe& recipe,
                             std::span<const Term> terms, std::span<const void* const> found,
                             void* out, std::span<const int64_t> counts, DType type, ReduceOp op,
                             LedgerEntry& entry) {
  staged_reduce(group, recipe, terms, found, counts, static_cast<char*>(out), nullptr, type, op,
                entry);
}

void staged_gather(Group::Impl& group, const void* in, void* out, std::span<const int64_t> counts,
                   int64_t width, LedgerEntry& entry) {
  const int me = group.rank;
  const std::vector<int64_t> starts = starts_of(counts);
  Staging ring(group, 1, width, *std::max_element(counts.begin(), counts.end()));
  const bool in_reach = group.offered_by(me) != nullptr;
  ring.run(
      [&](int64_t pass) {
        if (in_reach) return;
        const auto range = ring.range(pass, counts[me]);
        copy(ring.mine(pass, 0), static_cast<const char*>(in) + range.lo * width,
             range.size() * width);
      },
      [&](int64_t pass) {
        for (int i = 1; i < group.size(); ++i) {
          const int p = (me + i) % group.size();
          const auto range = ring.range(pass, counts[p]);
          if (range.size() == 0) continue;
          const char* offered = group.offered_by(p);
          copy(static_cast<char*>(out) + (starts[p] + range.lo) * width,
               offered != nullptr ? offered + range.lo * width : ring.of(p, pass, 0),
               range.size() * width);
          entry.bytes += range.size() * width;
        }
      },
      [](int64_t) {});
}

void staged_all_to_all(Group::Impl& group, const void* in, std::span<const int64_t> send_counts,
                       void* out, std::span<const int64_t> recv_counts, int64_t width,
                       LedgerEntry& entry) {
  const int me = group.rank;
  const std::vector<int64_t> send_starts = starts_of(send_counts);
  const std::vector<int64_t> recv_starts = starts_of(recv_counts);
  // The longest piece between any pair: all ranks agree on it.
  int64_t longest = 0;
  for (int p = 0; p < group.size(); ++p) {
    for (int q = 0; q < group.size(); ++q) longest = std::max(longest, group.sent(p, q));
  }
  Staging ring(group, group.size(), width, longest);
  const bool in_reach = group.offered_by(me) != nullptr;
  ring.run(
      [&](int64_t pass) {
        for (int p = 0; p < group.size() && !in_reach; ++p) {
          if (p == me) continue;
          const auto range = ring.range(pass, send_counts[p]);
          copy(ring.mine(pass, p),
               static_cast<const char*>(in) + (send_starts[p] + range.lo) * width,
               range.size() * width);
        }
      },
      [&](int64_t pass) {
        for (int i = 1; i < group.size(); ++i) {
          const int p = (me + i) % group.size();
          const auto range = ring.range(pass, recv_counts[p]);
          if (range.size() == 0) continue;
          const char* from = ring.of(p, pass, me);
          if (const char* offered = group.offered_by(p)) {
            int64_t start = range.lo;
            for (int q = 0; q < me; ++q) start += group.sent(p, q);
            from = offered + start * width;
          }
          copy(static_cast<char*>(out) + (recv_starts[p] + range.lo) * width, from,
               range.size() * width);
          entry.bytes += range.size() * width;
        }
      },
      [](int64_t) {});
}

}  // namespace lockstep::net
