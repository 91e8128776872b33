/// Values that show any mix-up, and sums of them taken by the definition of the tree.
#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include "lockstep/base/half.h"
#include "lockstep/base/hash.h"
#include "lockstep/net/group.h"
#include "lockstep/plan/sum_tree.h"

namespace lockstep::net::testing {

using base::BFloat16;
using base::Float16;

inline uint64_t draw(uint64_t seed, uint64_t source, int64_t index) {
  return base::mix64(base::mix64(seed * 1000 + source) ^ static_cast<uint64_t>(index));
}

template <class T>
struct Traits;
#define LOCKSTEP_TRAITS(T, dtype)        \
  template <>                            \
  struct Traits<T> {                     \
    static constexpr DType type = dtype; \
  }
LOCKSTEP_TRAITS(float, DType::f32);
LOCKSTEP_TRAITS(double, DType::f64);
LOCKSTEP_TRAITS(Float16, DType::f16);
LOCKSTEP_TRAITS(BFloat16, DType::bf16);
LOCKSTEP_TRAITS(int8_t, DType::i8);
LOCKSTEP_TRAITS(uint8_t, DType::u8);
LOCKSTEP_TRAITS(int16_t, DType::i16);
LOCKSTEP_TRAITS(int32_t, DType::i32);
LOCKSTEP_TRAITS(int64_t, DType::i64);
LOCKSTEP_TRAITS(bool, DType::boolean);
#undef LOCKSTEP_TRAITS

/// Floats of magnitudes from 2^-8 to 2^7, so that the order of additions shows in the last bits.
template <class T>
T value(uint64_t seed, int source, int64_t index) {
  const uint64_t bits = draw(seed, static_cast<uint64_t>(source), index);
  const double real = std::ldexp(static_cast<double>(static_cast<int64_t>(bits) >> 11) * 0x1p-52,
                                 static_cast<int>(bits % 16) - 8);
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>) {
    T half;
    narrow(static_cast<float>(real), half);
    return half;
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(real);
  } else {
    return static_cast<T>(bits >> 20);
  }
}

/// `count` values in memory of the heap or of this process, not a multiple of 64 bytes from its
/// start when `shift` is odd.
template <class T>
class Buffer {
 public:
  Buffer(Group& group, int64_t count, bool in_heap, int shift = 0)
      : bytes_((count + shift) * int64_t{sizeof(T)}) {
    if (in_heap) {
      block_ = group.allocate(bytes_);
      data_ = static_cast<T*>(block_.data()) + shift;
    } else {
      own_.reset(new char[static_cast<size_t>(bytes_) + 64]);
      data_ = reinterpret_cast<T*>(own_.get()) + shift;
    }
    count_ = count;
    std::memset(static_cast<void*>(data_), 0x5a, static_cast<size_t>(count) * sizeof(T));
  }
  T* data() { return data_; }
  T& operator[](int64_t i) { return data_[i]; }
  int64_t count() const { return count_; }
  void fill(uint64_t seed, int source) {
    for (int64_t i = 0; i < count_; ++i) data_[i] = value<T>(seed, source, i);
  }

 private:
  int64_t bytes_;
  int64_t count_ = 0;
  HeapBlock block_;
  std::unique_ptr<char[]> own_;
  T* data_ = nullptr;
};

template <class T>
bool same_bits(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

template <class A>
A combine(ReduceOp op, A a, A b) {
  switch (op) {
    case ReduceOp::max:
      return a > b ? a : b;
    case ReduceOp::min:
      return a < b ? a : b;
    case ReduceOp::sum:
    case ReduceOp::average:
      break;
  }
  if constexpr (std::is_same_v<A, bool>) {
    return a || b;
  } else if constexpr (std::is_integral_v<A>) {
    return static_cast<A>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  } else {
    return a + b;
  }
}

/// The value of node [lo, hi) at `index`, by the definition; `wide(leaf)` is a leaf's value.
template <class Wide>
auto tree_value(ReduceOp op, int lo, int hi, const Wide& wide) -> decltype(wide(0)) {
  if (hi - lo == 1) return wide(lo);
  const int mid = plan::split(lo, hi);
  return combine(op, tree_value(op, lo, mid, wide), tree_value(op, mid, hi, wide));
}

/// What a canonical reduction over leaves 0..leaves-1 must give for element `index`.
template <class T>
T expected(ReduceOp op, int leaves, uint64_t seed, int64_t index) {
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>) {
    T half;
    narrow(tree_value(op, 0, leaves, [&](int leaf) { return widen(value<T>(seed, leaf, index)); }),
           half);
    return half;
  } else {
    return tree_value(op, 0, leaves, [&](int leaf) { return value<T>(seed, leaf, index); });
  }
}

}  // namespace lockstep::net::testing
