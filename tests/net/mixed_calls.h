/// A seeded sequence of small calls, the same on every engine: all operations, types and
/// algorithms, 0 elements to some KiB, in several groups that are made and freed on the way. Every
/// element of every result is checked against its closed form.
#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "lockstep/base/str.h"
#include "lockstep/net/types.h"
#include "tests/net/values.h"
#include "tests/support/resident_memory.h"

namespace lockstep::net::testing {

class MixedCalls {
 public:
  /// `world`: at most 8 ranks, whose sums of values below 16 are exact in every type.
  MixedCalls(std::shared_ptr<Group> world, uint64_t seed) : world_(std::move(world)), seed_(seed) {
    for (size_t g = 0; g < kGroups; ++g) groups_.push_back(make_group(g));
  }

  /// Calls number `done()` to `until` - 1 of the job; each rank makes those of groups that it is
  /// in. Throws std::runtime_error at the first wrong value.
  void run(int64_t until) {
    for (; done_ < until; ++done_) {
      draws_ = draw(seed_, 0, done_);
      if (done_ % 997 == 996) {
        const size_t which = next(kGroups);
        groups_[which] = nullptr;
        groups_[which] = make_group(which + static_cast<size_t>(done_));
      }
      const std::shared_ptr<Group>& group = groups_[next(kGroups)];
      if (group == nullptr) continue;
      call(*group);
    }
  }

  int64_t done() const { return done_; }

  /// `run`, and how many bytes more this process has at the end than after a tenth.
  int64_t growth(int64_t calls) {
    run(calls / 10);
    const int64_t early = lockstep::testing::resident_bytes();
    run(calls);
    return lockstep::testing::resident_bytes() - early;
  }

 private:
  static constexpr size_t kGroups = 5;
  static constexpr int64_t kMostElements = 1500;

  /// The next random number below `bound`, the same on all ranks.
  uint64_t next(uint64_t bound) {
    draws_ = base::mix64(draws_ + 1);
    return draws_ % bound;
  }

  std::shared_ptr<Group> make_group(size_t number) {
    const int n = world_->size();
    std::vector<int> ranks(static_cast<size_t>(n));
    std::iota(ranks.begin(), ranks.end(), 0);
    if (number % 3 == 1) std::reverse(ranks.begin(), ranks.end());
    if (number % 5 == 2 && n > 2) ranks.erase(ranks.begin() + static_cast<int>(number / 5) % n);
    if (number % 5 == 4 && n > 3) ranks.resize(static_cast<size_t>(n) / 2);
    const auto group = world_->subgroup(ranks, base::str("group ", number));
    if (group && number % 2 == 1) {
      plan::AlgorithmTable table;
      using plan::Collective;
      for (const Collective operation :
           {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
            Collective::broadcast, Collective::all_to_all}) {
        const auto algorithms = plan::algorithms_of(operation);
        table.rules.push_back({operation, algorithms[number / 2 % algorithms.size()]});
      }
      group->set_algorithms(table);
    }
    return group;
  }

  void call(Group& group) {
    switch (next(10)) {
      case 0:
        return of_type<float>(group);
      case 1:
        return of_type<double>(group);
      case 2:
        return of_type<Float16>(group);
      case 3:
        return of_type<BFloat16>(group);
      case 4:
        return of_type<int8_t>(group);
      case 5:
        return of_type<uint8_t>(group);
      case 6:
        return of_type<int16_t>(group);
      case 7:
        return of_type<int32_t>(group);
      case 8:
        return of_type<int64_t>(group);
      default:
        return of_type<bool>(group);
    }
  }

  /// Mostly few.
  int64_t elements() {
    const std::array<uint64_t, 6> most = {1, 8, 8, 64, 300, kMostElements};
    return static_cast<int64_t>(next(most[next(most.size())] + 1));
  }

  /// What rank `source` brings as element `index` of this call, below 16.
  int number(int source, int64_t index) const {
    return static_cast<int>((draws_ >> 8) + static_cast<uint64_t>(source * 5 + index * 3) +
                            static_cast<uint64_t>(index >> 4)) &
           15;
  }

  template <class T>
  static T of(int number) {
    if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>) {
      T half;
      narrow(static_cast<float>(number), half);
      return half;
    } else if constexpr (std::is_same_v<T, bool>) {
      return number % 2 != 0;
    } else {
      return static_cast<T>(number);
    }
  }

  template <class T>
  T reduced(const Group& group, ReduceOp op, int64_t index) const {
    int result = number(0, index);
    if constexpr (std::is_same_v<T, bool>) result %= 2;
    for (int r = 1; r < group.size(); ++r) {
      int other = number(r, index);
      if constexpr (std::is_same_v<T, bool>) other %= 2;
      result = op == ReduceOp::max   ? std::max(result, other)
               : op == ReduceOp::min ? std::min(result, other)
                                     : result + other;
    }
    if constexpr (std::is_same_v<T, bool>) return result != 0;
    return of<T>(result);
  }

  /// Memory for `count` elements: of the heap or of this process, filled with what no result is.
  template <class T>
  T* memory(size_t which, int64_t count, bool in_heap) {
    Room& room = rooms_[which];
    if (!room.heap.memory) {
      room.heap = world_->allocate(kRoomBytes);
      room.own.resize(kRoomBytes);
    }
    void* const at = in_heap ? room.heap.data() : room.own.data();
    std::memset(at, 0x7b, static_cast<size_t>(count) * sizeof(T));
    return static_cast<T*>(at);
  }

  template <class T>
  void expect(const Group& group, const char* what, const T* got, int64_t index, T wanted) const {
    if (same_bits(got[index], wanted)) return;
    throw std::runtime_error(base::str("call ", done_, ", ", what, " of ",
                                       net::name_of(Traits<T>::type), " on ", group.name(), " of ",
                                       group.size(), " ranks: element ", index, " is wrong"));
  }

  template <class T>
  void of_type(Group& group) {
    const int n = group.size();
    const int me = group.rank();
    const uint64_t operation = next(9);
    const int64_t count = elements();
    const bool in_heap = next(2) == 0;
    const int root = static_cast<int>(next(static_cast<uint64_t>(n)));
    const std::array<ReduceOp, 3> operators = {ReduceOp::sum, ReduceOp::max, ReduceOp::min};
    const ReduceOp op = operators[next(3)];
    constexpr DType type = Traits<T>::type;
    // Slices: of unlike lengths, some empty.
    std::vector<int64_t> counts;
    for (int r = 0; r < n; ++r) counts.push_back((count + r * 7) % (1 + count / n));
    const int64_t all = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    const int64_t before = std::accumulate(counts.begin(), counts.begin() + me, int64_t{0});
    const int64_t own = counts[static_cast<size_t>(me)];

    switch (operation) {
      case 0:
      case 1: {
        T* const x = memory<T>(0, count, in_heap);
        for (int64_t i = 0; i < count; ++i) x[i] = of<T>(number(me, i));
        group.all_reduce(x, count, type, op);
        for (int64_t i = 0; i < count; ++i) {
          expect(group, "all_reduce", x, i, reduced<T>(group, op, i));
        }
        return;
      }
      case 2: {
        T* const x = memory<T>(0, all, in_heap);
        T* const y = memory<T>(1, own, in_heap);
        for (int64_t i = 0; i < all; ++i) x[i] = of<T>(number(me, i));
        group.reduce_scatter(x, y, counts, type, op);
        for (int64_t i = 0; i < own; ++i) {
          expect(group, "reduce_scatter", y, i, reduced<T>(group, op, before + i));
        }
        return;
      }
      case 3: {
        T* const x = memory<T>(0, own, in_heap);
        T* const y = memory<T>(1, all, !in_heap);
        for (int64_t i = 0; i < own; ++i) x[i] = of<T>(number(me, i));
        group.all_gather(x, y, counts, type);
        int64_t at = 0;
        for (int r = 0; r < n; ++r) {
          for (int64_t i = 0; i < counts[static_cast<size_t>(r)]; ++i, ++at) {
            expect(group, "all_gather", y, at, of<T>(number(r, i)));
          }
        }
        return;
      }
      case 4: {
        T* const x = memory<T>(0, count, in_heap);
        for (int64_t i = 0; i < count && me == root; ++i) x[i] = of<T>(number(root, i));
        group.broadcast(x, count, type, root);
        for (int64_t i = 0; i < count; ++i) {
          expect(group, "broadcast", x, i, of<T>(number(root, i)));
        }
        return;
      }
      case 5: {
        // As many either way, so that a rank knows what it receives.
        const auto between = [&](int r, int p) { return (count + r + p) % (1 + count / n); };
        std::vector<int64_t> pieces;
        for (int p = 0; p < n; ++p) pieces.push_back(between(me, p));
        const int64_t total = std::accumulate(pieces.begin(), pieces.end(), int64_t{0});
        T* const x = memory<T>(0, total, in_heap);
        T* const y = memory<T>(1, total, !in_heap);
        for (int64_t i = 0; i < total; ++i) x[i] = of<T>(number(me, i));
        group.all_to_all(x, pieces, y, pieces, type);
        int64_t at = 0;
        for (int r = 0; r < n; ++r) {
          int64_t start = 0;
          for (int p = 0; p < me; ++p) start += between(r, p);
          for (int64_t i = 0; i < between(r, me); ++i, ++at) {
            expect(group, "all_to_all", y, at, of<T>(number(r, start + i)));
          }
        }
        return;
      }
      case 6: {
        const int to = (me + 1) % n;
        const int from = (me + n - 1) % n;
        if (n == 1) return;
        T* const x = memory<T>(0, count, in_heap);
        T* const y = memory<T>(1, count, in_heap);
        for (int64_t i = 0; i < count; ++i) x[i] = of<T>(number(me, i));
        group.send(x, count, type, to, root);
        group.recv(y, count, type, from, root);
        for (int64_t i = 0; i < count; ++i) expect(group, "send", y, i, of<T>(number(from, i)));
        return;
      }
      case 7: {
        const auto text_of = [&](int r) {
          return std::string(static_cast<size_t>((count + r) % (count + 1)),
                             static_cast<char>('a' + number(r, count)));
        };
        const std::vector<std::string> texts = group.gather_text(text_of(me));
        for (int r = 0; r < n; ++r) {
          if (texts[static_cast<size_t>(r)] == text_of(r)) continue;
          throw std::runtime_error(
              base::str("call ", done_, ": the text of rank ", r, " is wrong"));
        }
        return;
      }
      default:
        group.barrier();
    }
  }

  static constexpr int64_t kRoomBytes = 2 * 8 * kMostElements;  // slices may add up to a bit more
  struct Room {
    HeapBlock heap;
    std::vector<char> own;
  };

  std::shared_ptr<Group> world_;
  uint64_t seed_;
  std::vector<std::shared_ptr<Group>> groups_;  // null: this rank is not in it
  std::array<Room, 2> rooms_;
  int64_t done_ = 0;
  uint64_t draws_ = 0;
};

}  // namespace lockstep::net::testing
