/// Memory that holds sums by name instead of numbers: what a plan's steps do to it is what they do
/// to any data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "lockstep/plan/sum_plan.h"

namespace lockstep::plan::detail {

/// Sums of terms, one number for each: a + b and b + a are one sum, (a + b) + c and a + (b + c) are
/// two. Term t is sum t.
class SymbolicSums {
 public:
  explicit SymbolicSums(int num_terms);

  /// Throws std::logic_error, naming the term, if one would be in the sum twice.
  int add(int a, int b);

  /// Whether every term is in it.
  bool complete(int sum) const;

 private:
  const uint64_t* terms_of(int sum) const { return &terms_[static_cast<size_t>(sum) * words_]; }

  int num_terms_;
  size_t words_;
  int num_sums_;
  std::vector<uint64_t> terms_;  // words_ words of bits for each sum
  std::unordered_map<uint64_t, int> sums_;
};

inline constexpr int kUndefined = -1;

/// `size` elements: element, element + 1, ... of `sum`.
struct Stretch {
  int64_t size;
  int sum;
  int64_t element;
};

/// Stretches side by side. Elements that were never written are kUndefined.
class SymbolicMemory {
 public:
  std::vector<Stretch> read(ElementRange range) const;
  void write(int64_t at, const std::vector<Stretch>& stretches);

 private:
  void clear(ElementRange range);

  std::map<int64_t, Stretch> stretches_;  // by their first index
};

/// The sums of two equally long rows of stretches. Throws std::logic_error if they would add unlike
/// elements.
std::vector<Stretch> added(SymbolicSums& sums, const std::vector<Stretch>& a,
                           const std::vector<Stretch>& b);

}  // namespace lockstep::plan::detail
