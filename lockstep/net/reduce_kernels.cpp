#include "lockstep/net/reduce_kernels.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "lockstep/base/half.h"

// One body, compiled for each instruction set and chosen at run time. (Not target_clones: their
// resolvers run before a sanitizer is set up.)
#define LOCKSTEP_INLINE inline __attribute__((always_inline))
#if defined(__x86_64__)
#define LOCKSTEP_HAS_TARGETS
#endif

namespace lockstep::net {
namespace {

using base::BFloat16;
using base::Float16;
using plan::AddStep;

// ---- fused: float32 sums over a few terms, read and stored in one pass ----

/// 16 floats. Loaded and stored by memcpy: memory need not be aligned.
typedef float Floats __attribute__((vector_size(64)));

/// The tree over kTerms values; for three terms there are two trees.
enum class Tree { two, left_three, right_three, four, eight };

constexpr int terms_of(Tree tree) {
  switch (tree) {
    case Tree::two:
      return 2;
    case Tree::left_three:
    case Tree::right_three:
      return 3;
    case Tree::four:
      return 4;
    case Tree::eight:
      return 8;
  }
  return 0;
}

template <class V>
LOCKSTEP_INLINE void load(V& value, const float* from) {
  __builtin_memcpy(&value, from, sizeof(V));
}

template <Tree kTree, class V>
LOCKSTEP_INLINE void add_at(const float* const* t, int64_t i, V& sum) {
  constexpr int kTerms = terms_of(kTree);
  V v[kTerms];
  for (int k = 0; k < kTerms; ++k) load(v[k], t[k] + i);
  if constexpr (kTree == Tree::two) {
    sum = v[0] + v[1];
  } else if constexpr (kTree == Tree::left_three) {
    sum = (v[0] + v[1]) + v[2];
  } else if constexpr (kTree == Tree::right_three) {
    sum = v[0] + (v[1] + v[2]);
  } else if constexpr (kTree == Tree::four) {
    sum = (v[0] + v[1]) + (v[2] + v[3]);
  } else {
    sum = ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
  }
}

/// kResults 0: any number.
template <Tree kTree, int kResults>
LOCKSTEP_INLINE void fused_pass(const void* const* terms, void* const* results, int num_results,
                                int64_t count) {
  constexpr int kTerms = terms_of(kTree);
  const float* t[kTerms];
  for (int k = 0; k < kTerms; ++k) t[k] = static_cast<const float*>(terms[k]);
  float* fixed[kResults > 0 ? kResults : 1];
  if constexpr (kResults > 0) {
    for (int r = 0; r < kResults; ++r) fixed[r] = static_cast<float*>(results[r]);
  }
  const auto store = [&](int64_t i, const auto& sum) __attribute__((always_inline)) {
    if constexpr (kResults > 0) {
      for (int r = 0; r < kResults; ++r) __builtin_memcpy(fixed[r] + i, &sum, sizeof sum);
    } else {
      for (int r = 0; r < num_results; ++r) {
        __builtin_memcpy(static_cast<float*>(results[r]) + i, &sum, sizeof sum);
      }
    }
  };
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    Floats sum;
    add_at<kTree>(t, i, sum);
    store(i, sum);
  }
  for (; i < count; ++i) {
    float sum;
    add_at<kTree>(t, i, sum);
    store(i, sum);
  }
}

template <Tree kTree>
LOCKSTEP_INLINE void fused_tree(const void* const* terms, void* const* results, int num_results,
                                int64_t count) {
  switch (num_results) {
    case 1:
      return fused_pass<kTree, 1>(terms, results, num_results, count);
    case 2:
      return fused_pass<kTree, 2>(terms, results, num_results, count);
    case 3:
      return fused_pass<kTree, 3>(terms, results, num_results, count);
    case 4:
      return fused_pass<kTree, 4>(terms, results, num_results, count);
    default:
      return fused_pass<kTree, 0>(terms, results, num_results, count);
  }
}

LOCKSTEP_INLINE void fused_body(Tree tree, const void* const* terms, void* const* results,
                                int num_results, int64_t count) {
  switch (tree) {
    case Tree::two:
      return fused_tree<Tree::two>(terms, results, num_results, count);
    case Tree::left_three:
      return fused_tree<Tree::left_three>(terms, results, num_results, count);
    case Tree::right_three:
      return fused_tree<Tree::right_three>(terms, results, num_results, count);
    case Tree::four:
      return fused_tree<Tree::four>(terms, results, num_results, count);
    case Tree::eight:
      return fused_tree<Tree::eight>(terms, results, num_results, count);
  }
}

/// Whether `additions` are those of a tree that has a fused loop.
bool fused_tree_of(std::span<const AddStep> additions, Tree& tree) {
  const auto is = [&](std::initializer_list<AddStep> steps) {
    return std::equal(additions.begin(), additions.end(), steps.begin(), steps.end());
  };
  if (is({{0, 1}})) {
    tree = Tree::two;
  } else if (is({{0, 1}, {0, 2}})) {
    tree = Tree::left_three;
  } else if (is({{1, 2}, {0, 1}})) {
    tree = Tree::right_three;
  } else if (is({{0, 1}, {2, 3}, {0, 2}})) {
    tree = Tree::four;
  } else if (is({{0, 1}, {2, 3}, {0, 2}, {4, 5}, {6, 7}, {4, 6}, {0, 4}})) {
    tree = Tree::eight;
  } else {
    return false;
  }
  return true;
}

// ---- by tiles: any type, operator and tree ----

/// Elements of a tile: all slots' tiles of a usual sum stay in the first-level cache.
constexpr int kTile = 512;

/// What a type is added in.
template <class T>
struct Accumulator {
  using type = T;
};
template <>
struct Accumulator<BFloat16> {
  using type = float;
};
template <>
struct Accumulator<Float16> {
  using type = float;
};

struct Sum {
  template <class A>
  static LOCKSTEP_INLINE A apply(A a, A b) {
    if constexpr (std::is_same_v<A, bool>) {
      return a || b;
    } else if constexpr (std::is_integral_v<A>) {
      // Unsigned, so that overflow wraps instead of being undefined.
      using U = std::make_unsigned_t<A>;
      return static_cast<A>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
    } else {
      return a + b;
    }
  }
};
/// Adds; the tile of the sum is divided afterwards.
struct Average : Sum {};
struct Max {
  template <class A>
  static LOCKSTEP_INLINE A apply(A a, A b) {
    return a > b || a != a ? a : b;
  }
};
struct Min {
  template <class A>
  static LOCKSTEP_INLINE A apply(A a, A b) {
    return a < b || a != a ? a : b;
  }
};

template <class T, class Op>
LOCKSTEP_INLINE void tiles_body(std::span<const void* const> terms,
                                std::span<const AddStep> additions, std::span<void* const> results,
                                int64_t count) {
  using A = typename Accumulator<T>::type;
  constexpr bool kWidened = !std::is_same_v<A, T>;
  thread_local std::vector<char> memory;
  const size_t slots = terms.size();
  const size_t wanted = (slots + 1) * kTile * sizeof(A);  // one more to narrow into
  if (memory.size() < wanted) memory.resize(wanted);
  thread_local std::vector<const A*> slot;  // where each slot's value is now
  slot.resize(slots);
  A* const tiles = reinterpret_cast<A*>(memory.data());

  for (int64_t start = 0; start < count; start += kTile) {
    const int n = static_cast<int>(std::min<int64_t>(kTile, count - start));
    for (size_t t = 0; t < terms.size(); ++t) {
      const T* term = static_cast<const T*>(terms[t]) + start;
      if constexpr (kWidened) {
        A* __restrict tile = tiles + t * kTile;
        for (int i = 0; i < n; ++i) tile[i] = widen(term[i]);
        slot[t] = tile;
      } else {
        slot[t] = term;
      }
    }
    for (const AddStep& step : additions) {
      const A* const a = slot[static_cast<size_t>(step.into)];
      const A* const b = slot[static_cast<size_t>(step.from)];
      A* const tile = tiles + static_cast<size_t>(step.into) * kTile;
#pragma GCC ivdep
      for (int i = 0; i < n; ++i) tile[i] = Op::apply(a[i], b[i]);
      slot[static_cast<size_t>(step.into)] = tile;
    }
    if constexpr (std::is_same_v<Op, Average>) {
      // With one term there is no addition, nothing was copied to a tile, and nothing to divide.
      const auto divisor = static_cast<A>(slots);
      for (int i = 0; i < n && !additions.empty(); ++i) tiles[i] /= divisor;
    }
    const void* result = slot[0];
    if constexpr (kWidened) {
      const A* const wide = slot[0];
      T* const __restrict narrowed = reinterpret_cast<T*>(tiles + slots * kTile);
      for (int i = 0; i < n; ++i) narrow(wide[i], narrowed[i]);
      result = narrowed;
    }
    for (void* const out : results) {
      void* const to = static_cast<T*>(out) + start;
      if (to != result) std::memcpy(to, result, static_cast<size_t>(n) * sizeof(T));
    }
  }
}

template <class T>
LOCKSTEP_INLINE void tiles_by_op(ReduceOp op, std::span<const void* const> terms,
                                 std::span<const AddStep> additions, std::span<void* const> results,
                                 int64_t count) {
  switch (op) {
    case ReduceOp::sum:
      return tiles_body<T, Sum>(terms, additions, results, count);
    case ReduceOp::max:
      return tiles_body<T, Max>(terms, additions, results, count);
    case ReduceOp::min:
      return tiles_body<T, Min>(terms, additions, results, count);
    case ReduceOp::average:
      if constexpr (std::is_floating_point_v<typename Accumulator<T>::type>) {
        return tiles_body<T, Average>(terms, additions, results, count);
      }
  }
}

LOCKSTEP_INLINE void tiles_by_type(DType type, ReduceOp op, std::span<const void* const> terms,
                                   std::span<const AddStep> additions,
                                   std::span<void* const> results, int64_t count) {
  switch (type) {
    case DType::f32:
      return tiles_by_op<float>(op, terms, additions, results, count);
    case DType::f64:
      return tiles_by_op<double>(op, terms, additions, results, count);
    case DType::f16:
      return tiles_by_op<Float16>(op, terms, additions, results, count);
    case DType::bf16:
      return tiles_by_op<BFloat16>(op, terms, additions, results, count);
    case DType::i8:
      return tiles_by_op<int8_t>(op, terms, additions, results, count);
    case DType::u8:
      return tiles_by_op<uint8_t>(op, terms, additions, results, count);
    case DType::i16:
      return tiles_by_op<int16_t>(op, terms, additions, results, count);
    case DType::i32:
      return tiles_by_op<int32_t>(op, terms, additions, results, count);
    case DType::i64:
      return tiles_by_op<int64_t>(op, terms, additions, results, count);
    case DType::boolean:
      return tiles_by_op<bool>(op, terms, additions, results, count);
  }
}

// ---- one entry an instruction set ----

struct Kernels {
  void (*fused)(Tree, const void* const*, void* const*, int, int64_t);
  void (*tiles)(DType, ReduceOp, std::span<const void* const>, std::span<const AddStep>,
                std::span<void* const>, int64_t);
};

#define LOCKSTEP_KERNELS(name, attributes)                                                         \
  attributes void fused_##name(Tree tree, const void* const* terms, void* const* results,          \
                               int num_results, int64_t count) {                                   \
    fused_body(tree, terms, results, num_results, count);                                          \
  }                                                                                                \
  attributes void tiles_##name(DType type, ReduceOp op, std::span<const void* const> terms,        \
                               std::span<const AddStep> additions, std::span<void* const> results, \
                               int64_t count) {                                                    \
    tiles_by_type(type, op, terms, additions, results, count);                                     \
  }

LOCKSTEP_KERNELS(any, )
#ifdef LOCKSTEP_HAS_TARGETS
LOCKSTEP_KERNELS(v3, __attribute__((target("arch=x86-64-v3"))))
LOCKSTEP_KERNELS(v4, __attribute__((target("arch=x86-64-v4"))))
#endif

Kernels kernels_of_this_machine() {
#ifdef LOCKSTEP_HAS_TARGETS
  if (__builtin_cpu_supports("x86-64-v4")) return {fused_v4, tiles_v4};
  if (__builtin_cpu_supports("x86-64-v3")) return {fused_v3, tiles_v3};
#endif
  return {fused_any, tiles_any};
}

}  // namespace

void reduce(DType type, ReduceOp op, std::span<const void* const> terms,
            std::span<const AddStep> additions, std::span<void* const> results, int64_t count) {
  static const Kernels kernels = kernels_of_this_machine();
  if (terms.empty()) {
    for (void* result : results) {
      if (count > 0) std::memset(result, 0, static_cast<size_t>(count * width_of(type)));
    }
    return;
  }
  Tree tree;
  if (type == DType::f32 && op == ReduceOp::sum && fused_tree_of(additions, tree)) {
    kernels.fused(tree, terms.data(), results.data(), static_cast<int>(results.size()), count);
  } else {
    kernels.tiles(type, op, terms, additions, results, count);
  }
}

}  // namespace lockstep::net
