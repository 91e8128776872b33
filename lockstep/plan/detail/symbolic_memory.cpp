#include "lockstep/plan/detail/symbolic_memory.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <stdexcept>

#include "lockstep/base/str.h"

namespace lockstep::plan::detail {

SymbolicSums::SymbolicSums(int num_terms)
    : num_terms_(num_terms),
      words_((static_cast<size_t>(num_terms) + 63) / 64),
      num_sums_(num_terms),
      terms_(static_cast<size_t>(num_terms) * words_) {
  for (int term = 0; term < num_terms; ++term) {
    terms_[static_cast<size_t>(term) * words_ + static_cast<size_t>(term) / 64] |= uint64_t{1}
                                                                                   << (term % 64);
  }
}

int SymbolicSums::add(int a, int b) {
  const auto [low, high] = std::minmax(a, b);
  const auto [known, is_new] =
      sums_.try_emplace(uint64_t(uint32_t(low)) << 32 | uint32_t(high), num_sums_);
  if (!is_new) return known->second;
  terms_.resize(terms_.size() + words_);
  for (size_t w = 0; w < words_; ++w) {
    const uint64_t twice = terms_of(a)[w] & terms_of(b)[w];
    if (twice != 0) {
      throw std::logic_error(base::str(
          "term ", 64 * w + static_cast<size_t>(std::countr_zero(twice)), " is added twice"));
    }
    terms_[static_cast<size_t>(num_sums_) * words_ + w] = terms_of(a)[w] | terms_of(b)[w];
  }
  return num_sums_++;
}

bool SymbolicSums::complete(int sum) const {
  int terms = 0;
  for (size_t w = 0; w < words_; ++w) terms += std::popcount(terms_of(sum)[w]);
  return terms == num_terms_;
}

std::vector<Stretch> SymbolicMemory::read(ElementRange range) const {
  std::vector<Stretch> found;
  auto next = stretches_.upper_bound(range.lo);
  if (next != stretches_.begin()) --next;
  int64_t at = range.lo;
  for (; at < range.hi && next != stretches_.end(); ++next) {
    const auto& [lo, stretch] = *next;
    const int64_t hi = std::min(range.hi, lo + stretch.size);
    if (hi <= at) continue;
    if (lo >= range.hi) break;
    if (lo > at) {
      found.push_back({lo - at, kUndefined, 0});
      at = lo;
    }
    found.push_back({hi - at, stretch.sum, stretch.element + (at - lo)});
    at = hi;
  }
  if (at < range.hi) found.push_back({range.hi - at, kUndefined, 0});
  return found;
}

void SymbolicMemory::write(int64_t at, const std::vector<Stretch>& stretches) {
  int64_t size = 0;
  for (const Stretch& stretch : stretches) size += stretch.size;
  clear({at, at + size});
  for (const Stretch& stretch : stretches) {
    stretches_.insert_or_assign(at, stretch);
    at += stretch.size;
  }
}

/// Removes what lies in `range`; a stretch that reaches out of it keeps its ends.
void SymbolicMemory::clear(ElementRange range) {
  auto next = stretches_.lower_bound(range.lo);
  if (next != stretches_.begin()) {
    auto& [lo, before] = *std::prev(next);
    const int64_t hi = lo + before.size;
    if (hi > range.hi) {
      next = stretches_.insert(
          next, {range.hi, {hi - range.hi, before.sum, before.element + (range.hi - lo)}});
    }
    before.size = std::min(hi, range.lo) - lo;
  }
  while (next != stretches_.end() && next->first < range.hi) {
    const auto [lo, stretch] = *next;
    const int64_t hi = lo + stretch.size;
    next = stretches_.erase(next);
    if (hi <= range.hi) continue;
    stretches_.insert(next,
                      {range.hi, {hi - range.hi, stretch.sum, stretch.element + (range.hi - lo)}});
  }
}

std::vector<Stretch> added(SymbolicSums& sums, const std::vector<Stretch>& a,
                           const std::vector<Stretch>& b) {
  std::vector<Stretch> result;
  auto left = a.begin();
  auto right = b.begin();
  int64_t left_done = 0;
  int64_t right_done = 0;
  while (left != a.end() && right != b.end()) {
    const int64_t size = std::min(left->size - left_done, right->size - right_done);
    const int64_t element = left->element + left_done;
    if (element != right->element + right_done) {
      throw std::logic_error(
          base::str("element ", element, " is added to element ", right->element + right_done));
    }
    result.push_back({size, sums.add(left->sum, right->sum), element});
    left_done += size;
    right_done += size;
    if (left_done == left->size) ++left, left_done = 0;
    if (right_done == right->size) ++right, right_done = 0;
  }
  return result;
}

}  // namespace lockstep::plan::detail
