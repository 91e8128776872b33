// Every collective on every engine: one suite.
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "lockstep/plan/sum_plan.h"
#include "tests/net/ranks.h"
#include "tests/net/values.h"

namespace lockstep::net::testing {
namespace {

/// Zero, one, fewer than ranks, prime, inside and beyond a descriptor, a tile, a bounce copy.
const std::vector<int64_t> kSizes = {0, 1, 3, 16, 61, 64, 65, 127, 1000, 4099, 20011};

struct Case {
  Engine engine;
  int ranks;
};

class Conformance : public ::testing::TestWithParam<Case> {
 protected:
  void run(const Body& body) { run_on(GetParam().engine, GetParam().ranks, body); }
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Engine engine : {Engine::threads, Engine::shm}) {
    for (const int ranks : {1, 2, 3, 4, 5}) cases.push_back({engine, ranks});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Engines, Conformance, ::testing::ValuesIn(all_cases()),
                         [](const auto& info) {
                           return std::string(name_of(info.param.engine)) +
                                  std::to_string(info.param.ranks);
                         });

template <class T>
void check_all_reduce(Group& group, ReduceOp op, int64_t count, bool in_heap, int shift) {
  Buffer<T> x(group, count, in_heap, shift);
  x.fill(count, group.rank());
  group.all_reduce(x.data(), count, Traits<T>::type, op);
  for (int64_t i = 0; i < count; ++i) {
    ASSERT_TRUE(same_bits(x[i], expected<T>(op, group.size(), count, i)))
        << net::name_of(Traits<T>::type) << " " << net::name_of(op) << " element " << i << " of "
        << count << (in_heap ? " in the heap" : " in ordinary memory");
  }
}

template <class T>
void check_all_reduces(Group& group) {
  for (const bool in_heap : {true, false}) {
    for (const int64_t count : kSizes) {
      check_all_reduce<T>(group, ReduceOp::sum, count, in_heap, static_cast<int>(count % 2));
    }
    for (const ReduceOp op : {ReduceOp::max, ReduceOp::min}) {
      for (const int64_t count : {5, 1000}) check_all_reduce<T>(group, op, count, in_heap, 0);
    }
  }
}

TEST_P(Conformance, AllReduceOfEveryTypeIsTheTree) {
  run([](const std::shared_ptr<Group>& group) {
    check_all_reduces<float>(*group);
    check_all_reduces<double>(*group);
    check_all_reduces<Float16>(*group);
    check_all_reduces<BFloat16>(*group);
    check_all_reduces<int8_t>(*group);
    check_all_reduces<uint8_t>(*group);
    check_all_reduces<int16_t>(*group);
    check_all_reduces<int32_t>(*group);
    check_all_reduces<int64_t>(*group);
    check_all_reduces<bool>(*group);
  });
}

TEST_P(Conformance, RanksMayDifferInTheirKindOfMemory) {
  run([](const std::shared_ptr<Group>& group) {
    for (const int64_t count : {50, 5000, 40009}) {
      check_all_reduce<float>(*group, ReduceOp::sum, count, group->rank() % 2 == 0, 0);
    }
  });
}

// More passes than the staging ring has slots, so that slots are used again.
TEST_P(Conformance, LongOrdinaryMemoryIsStaged) {
  run([](const std::shared_ptr<Group>& group) {
    const int64_t count = 2'500'003;
    Buffer<float> x(*group, count, false);
    x.fill(1, group->rank());
    group->all_reduce(x.data(), count, DType::f32);
    for (int64_t i = 0; i < count; i += 97) {
      ASSERT_TRUE(same_bits(x[i], expected<float>(ReduceOp::sum, group->size(), 1, i))) << i;
    }
    if (group->size() > 1) {
      EXPECT_GT(group->ledger()[Operation::all_reduce].bytes, count * 4 / 2);
    }
    // Broadcast, too: pieces of 512 KiB.
    x.fill(2, group->rank());
    group->broadcast(x.data(), count, DType::f32, group->size() - 1);
    for (int64_t i = 0; i < count; i += 97) {
      ASSERT_TRUE(same_bits(x[i], value<float>(2, group->size() - 1, i))) << i;
    }
  });
}

/// Which leaves each rank holds: contiguous runs, round-robin, or all on the last rank.
std::vector<std::vector<plan::LeafRange>> layout(int kind, int leaves, int ranks) {
  std::vector<std::vector<plan::LeafRange>> held(static_cast<size_t>(ranks));
  if (kind == 0) {
    for (int r = 0, lo = 0; r < ranks; ++r) {
      const int hi = lo + leaves / ranks + (r < leaves % ranks ? 1 : 0);
      held[r] = plan::maximal_subtrees(leaves, {lo, hi});
      lo = hi;
    }
  } else if (kind == 1) {
    for (int leaf = 0; leaf < leaves; ++leaf) held[leaf % ranks].push_back({leaf, leaf + 1});
  } else {
    held.back() = {{0, leaves}};
  }
  return held;
}

template <class T>
void check_terms(Group& group, int leaves, int kind, int64_t count, bool in_heap) {
  const auto held = layout(kind, leaves, group.size());
  std::vector<std::unique_ptr<Buffer<T>>> buffers;
  std::vector<Term> terms;
  for (const plan::LeafRange range : held[group.rank()]) {
    buffers.push_back(std::make_unique<Buffer<T>>(group, count, in_heap));
    for (int64_t i = 0; i < count; ++i) {
      (*buffers.back())[i] = tree_value(ReduceOp::sum, range.lo, range.hi, [&](int leaf) {
        return value<T>(count + leaves, leaf, i);
      });
    }
    terms.push_back({range, buffers.back()->data()});
  }
  // Into the memory of its own last term, or elsewhere.
  Buffer<T> apart(group, count, in_heap);
  T* result = terms.empty() ? apart.data() : buffers.back()->data();
  const int64_t before = group.ledger()[Operation::all_reduce].bytes;
  group.all_reduce_terms(terms, leaves, result, count, Traits<T>::type);
  for (int64_t i = 0; i < count; ++i) {
    ASSERT_TRUE(same_bits(result[i], expected<T>(ReduceOp::sum, leaves, count + leaves, i)))
        << leaves << " leaves, layout " << kind << ", element " << i << " of " << count;
  }
  if (in_heap) {
    EXPECT_EQ(group.ledger()[Operation::all_reduce].bytes - before,
              plan::all_reduce_bytes(plan::plan_sum(leaves, held), group.rank(), count, sizeof(T)))
        << leaves << " leaves, layout " << kind << ", " << count << " elements";
  }
}

TEST_P(Conformance, TermsOfAnyLayoutAreTheSameTree) {
  run([](const std::shared_ptr<Group>& group) {
    for (const int leaves : {1, 2, 5, 8, 13}) {
      for (const int kind : {0, 1, 2}) {
        for (const int64_t count : {0, 1, 16, 33, 1003}) {
          for (const bool in_heap : {true, false}) {
            check_terms<float>(*group, leaves, kind, count, in_heap);
          }
        }
        check_terms<double>(*group, leaves, kind, 515, true);
        check_terms<float>(*group, leaves, kind, 30'011, false);
      }
    }
  });
}

TEST_P(Conformance, MoreTermsThanADescriptorHolds) {
  run([](const std::shared_ptr<Group>& group) {
    check_terms<float>(*group, 200, 1, 40, true);
    check_terms<float>(*group, 200, 1, 700, false);
  });
}

TEST_P(Conformance, NoTermAnywhereGivesZero) {
  run([](const std::shared_ptr<Group>& group) {
    for (const int64_t count : {3, 5000}) {
      Buffer<float> x(*group, count, true);
      group->all_reduce_terms({}, 4, x.data(), count, DType::f32);
      for (int64_t i = 0; i < count; ++i) ASSERT_TRUE(same_bits(x[i], 0.0f));
    }
  });
}

/// Different for each rank, zero for one of them.
std::vector<int64_t> uneven(int ranks, int64_t scale) {
  std::vector<int64_t> counts;
  for (int r = 0; r < ranks; ++r) counts.push_back(r == 1 ? 0 : scale + 7 * r);
  return counts;
}

TEST_P(Conformance, ReduceScatter) {
  run([](const std::shared_ptr<Group>& group) {
    for (const int64_t scale : {0, 1, 20, 999, 40'000}) {
      for (const bool in_heap : {true, false}) {
        const auto counts = uneven(group->size(), scale);
        const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
        int64_t start = 0;
        for (int r = 0; r < group->rank(); ++r) start += counts[r];
        Buffer<float> in(*group, total, in_heap);
        Buffer<float> out(*group, counts[group->rank()], in_heap);
        in.fill(scale, group->rank());
        group->reset_ledger();
        group->reduce_scatter(in.data(), out.data(), counts, DType::f32);
        for (int64_t i = 0; i < out.count(); ++i) {
          ASSERT_TRUE(
              same_bits(out[i], expected<float>(ReduceOp::sum, group->size(), scale, start + i)))
              << i << " of " << scale;
        }
        std::vector<std::vector<plan::LeafRange>> by_rank;
        for (int r = 0; r < group->size(); ++r) by_rank.push_back({{r, r + 1}});
        EXPECT_EQ(group->ledger()[Operation::reduce_scatter].bytes,
                  plan::direct_reduce_scatter_bytes(plan::plan_sum(group->size(), by_rank),
                                                    group->rank(), counts, 4));
      }
    }
  });
}

TEST_P(Conformance, ReduceScatterOfTerms) {
  run([](const std::shared_ptr<Group>& group) {
    const int leaves = 7;
    const auto held = layout(0, leaves, group->size());
    const auto counts = uneven(group->size(), 300);
    const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    const int64_t start =
        std::accumulate(counts.begin(), counts.begin() + group->rank(), int64_t{0});
    std::vector<std::unique_ptr<Buffer<double>>> buffers;
    std::vector<Term> terms;
    for (const plan::LeafRange range : held[group->rank()]) {
      buffers.push_back(std::make_unique<Buffer<double>>(*group, total, true));
      for (int64_t i = 0; i < total; ++i) {
        (*buffers.back())[i] = tree_value(ReduceOp::sum, range.lo, range.hi,
                                          [&](int leaf) { return value<double>(3, leaf, i); });
      }
      terms.push_back({range, buffers.back()->data()});
    }
    Buffer<double> out(*group, counts[group->rank()], false);
    group->reduce_scatter_terms(terms, leaves, out.data(), counts, DType::f64);
    for (int64_t i = 0; i < out.count(); ++i) {
      ASSERT_TRUE(same_bits(out[i], expected<double>(ReduceOp::sum, leaves, 3, start + i)));
    }
    EXPECT_EQ(
        group->ledger()[Operation::reduce_scatter].bytes,
        plan::direct_reduce_scatter_bytes(plan::plan_sum(leaves, held), group->rank(), counts, 8));
  });
}

TEST_P(Conformance, AllGather) {
  run([](const std::shared_ptr<Group>& group) {
    for (const int64_t scale : {0, 1, 20, 999, 200'000}) {
      for (const bool in_heap : {true, false}) {
        for (const bool in_place : {true, false}) {
          const auto counts = uneven(group->size(), scale);
          const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
          int64_t start =
              std::accumulate(counts.begin(), counts.begin() + group->rank(), int64_t{0});
          Buffer<int32_t> apart(*group, counts[group->rank()], in_heap);
          Buffer<int32_t> out(*group, total, in_heap);
          int32_t* in = in_place ? out.data() + start : apart.data();
          for (int64_t i = 0; i < counts[group->rank()]; ++i) {
            in[i] = value<int32_t>(scale, group->rank(), i);
          }
          group->reset_ledger();
          group->all_gather(in, out.data(), counts, DType::i32);
          for (int r = 0, at = 0; r < group->size(); ++r) {
            for (int64_t i = 0; i < counts[r]; ++i, ++at) {
              ASSERT_EQ(out[at], value<int32_t>(scale, r, i)) << "rank " << r << " element " << i;
            }
          }
          EXPECT_EQ(group->ledger()[Operation::all_gather].bytes,
                    plan::direct_all_gather_bytes(group->rank(), counts, 4));
        }
      }
    }
  });
}

TEST_P(Conformance, BroadcastFromEveryRank) {
  run([](const std::shared_ptr<Group>& group) {
    for (int root = 0; root < group->size(); ++root) {
      for (const int64_t count : kSizes) {
        Buffer<int64_t> x(*group, count, count % 2 == 0);
        x.fill(root, group->rank());
        group->reset_ledger();
        group->broadcast(x.data(), count, DType::i64, root);
        for (int64_t i = 0; i < count; ++i) ASSERT_EQ(x[i], value<int64_t>(root, root, i));
        EXPECT_EQ(group->ledger()[Operation::broadcast].bytes,
                  group->rank() == root ? 0 : count * 8);
      }
    }
  });
}

/// Of a long message the root stores each reader's last share, where it can reach it.
TEST_P(Conformance, LongBroadcastsAreTheWorkOfAll) {
  run([](const std::shared_ptr<Group>& group) {
    const int n = group->size();
    const int64_t count = 100'003;
    for (const bool in_heap : {true, false}) {
      for (const int root : {0, n - 1}) {
        Buffer<int64_t> x(*group, count, in_heap);
        x.fill(3, group->rank());
        group->reset_ledger();
        group->broadcast(x.data(), count, DType::i64, root);
        for (int64_t i = 0; i < count; ++i) ASSERT_EQ(x[i], value<int64_t>(3, root, i)) << i;
        const int64_t stored = count - count / n * (n - 1);
        const int64_t bytes = group->ledger()[Operation::broadcast].bytes;
        if (in_heap) {
          EXPECT_EQ(bytes, 8 * (group->rank() == root ? (n - 1) * stored : count - stored));
        }
        int64_t all = bytes;
        group->all_reduce(&all, 1, DType::i64);
        EXPECT_EQ(all, 8 * (n - 1) * count);
      }
    }
  });
}

TEST_P(Conformance, AllToAll) {
  run([](const std::shared_ptr<Group>& group) {
    const int n = group->size();
    const auto count = [](int from, int to, int64_t scale) {
      return (from + 2 * to) % 4 == 1 ? 0 : scale + 3 * from + to;
    };
    for (const int64_t scale : {0, 2, 500, 60'000}) {
      for (const bool in_heap : {true, false}) {
        std::vector<int64_t> sends;
        std::vector<int64_t> receives;
        for (int p = 0; p < n; ++p) {
          sends.push_back(count(group->rank(), p, scale));
          receives.push_back(count(p, group->rank(), scale));
        }
        Buffer<float> in(*group, std::accumulate(sends.begin(), sends.end(), int64_t{0}), in_heap);
        Buffer<float> out(*group, std::accumulate(receives.begin(), receives.end(), int64_t{0}),
                          in_heap);
        for (int p = 0, at = 0; p < n; ++p) {
          for (int64_t i = 0; i < sends[p]; ++i) in[at++] = value<float>(p, group->rank(), i);
        }
        group->all_to_all(in.data(), sends, out.data(), receives, DType::f32);
        for (int p = 0, at = 0; p < n; ++p) {
          for (int64_t i = 0; i < receives[p]; ++i) {
            ASSERT_EQ(out[at++], value<float>(group->rank(), p, i)) << "from " << p << " at " << i;
          }
        }
      }
    }
  });
}

TEST_P(Conformance, TextsOfDifferentLengths) {
  run([](const std::shared_ptr<Group>& group) {
    const auto text = [](int rank) {
      const std::vector<size_t> lengths = {0, 1, 3000, 256, 200'000};
      return std::string(lengths[static_cast<size_t>(rank) % 5], static_cast<char>('a' + rank));
    };
    for (int turn = 0; turn < 5; ++turn) {
      const auto all = group->gather_text(text(group->rank() + turn));
      ASSERT_EQ(static_cast<int>(all.size()), group->size());
      for (int r = 0; r < group->size(); ++r) EXPECT_EQ(all[r], text(r + turn));
    }
  });
}

TEST_P(Conformance, ManyCallsBackToBackStayInOrder) {
  run([](const std::shared_ptr<Group>& group) {
    Buffer<float> x(*group, 300, true);
    float scalar = 0;
    for (int turn = 0; turn < 1000; ++turn) {
      group->all_reduce(x.data(), 0, DType::f32);
      scalar = static_cast<float>(turn + group->rank());
      group->all_reduce(&scalar, 1, DType::f32);
      ASSERT_EQ(scalar,
                static_cast<float>(group->size() * turn + group->size() * (group->size() - 1) / 2));
      int64_t number = turn * 10 + group->rank();
      group->broadcast(&number, 1, DType::i64, turn % group->size());
      ASSERT_EQ(number, turn * 10 + turn % group->size());
      if (turn % 50 == 0) {
        x.fill(turn, group->rank());
        group->all_reduce(x.data(), 300, DType::f32);
        ASSERT_TRUE(same_bits(x[299], expected<float>(ReduceOp::sum, group->size(), turn, 299)));
        group->barrier();
      }
    }
    EXPECT_EQ(group->ledger()[Operation::all_reduce].calls, 2020);
    EXPECT_EQ(group->ledger()[Operation::barrier].calls, 20);
    if (group->size() == 1) {
      EXPECT_EQ(group->ledger().total().bytes, 0);
    }
  });
}

TEST_P(Conformance, Subgroups) {
  run([](const std::shared_ptr<Group>& world) {
    const int n = world->size();
    // Along an axis: each rank asks for its own list; one list leaves the last rank of 3 alone.
    const int pair = world->rank() / 2;
    std::vector<int> mine = {2 * pair};
    if (2 * pair + 1 < n) mine.push_back(2 * pair + 1);
    const auto pairs = world->subgroup(mine, "pair");
    ASSERT_TRUE(pairs);
    EXPECT_EQ(pairs->members(), mine);
    EXPECT_EQ(pairs->name(), "pair");
    // The same list everywhere, in another order; rank 0 is not in it.
    std::vector<int> backwards;
    for (int r = n - 1; r >= 1; --r) backwards.push_back(r);
    const auto others = world->subgroup(backwards, "others");
    EXPECT_EQ(others == nullptr, world->rank() == 0 || n == 1);

    int64_t sum = world->rank() + 1;
    pairs->all_reduce(&sum, 1, DType::i64);
    EXPECT_EQ(sum, 2 * pair + 1 + (mine.size() == 2 ? 2 * pair + 2 : 0));
    if (others) {
      EXPECT_EQ(others->rank(), n - 1 - world->rank());
      const auto texts = others->gather_text(std::to_string(world->rank()));
      for (int r = 0; r < others->size(); ++r) EXPECT_EQ(texts[r], std::to_string(n - 1 - r));
      // A group made inside one, while the rest of the world makes none.
      const auto inner = others->subgroup({others->rank()}, "alone");
      EXPECT_EQ(inner->size(), 1);
      inner->barrier();
    }
    // Its number was not known to rank 0: the next group of the world must not meet it.
    const auto again = world->subgroup(mine, "again");
    int64_t one = 1;
    again->all_reduce(&one, 1, DType::i64);
    EXPECT_EQ(one, again->size());
    if (others) others->barrier();
    world->barrier();
  });
}

TEST_P(Conformance, TwoGroupsFromTwoThreads) {
#if defined(__SANITIZE_THREAD__)
  // One thread stores into a peer's block, the peer frees it and gives it to the other group: what
  // orders the two happens in the peer's process, where this process's sanitizer cannot see it.
  if (GetParam().engine == Engine::shm) GTEST_SKIP() << "order made by another process";
#endif
  run([](const std::shared_ptr<Group>& world) {
    std::vector<int> everyone(static_cast<size_t>(world->size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    const auto second = world->subgroup(everyone, "second");
    const auto work = [](Group& group, uint64_t seed) {
      for (int turn = 0; turn < 100; ++turn) {
        const int64_t count = turn % 3 == 0 ? 5 : 3000;
        Buffer<float> x(group, count, turn % 2 == 0);
        x.fill(seed + turn, group.rank());
        group.all_reduce(x.data(), count, DType::f32);
        for (int64_t i = 0; i < count; i += 7) {
          ASSERT_TRUE(
              same_bits(x[i], expected<float>(ReduceOp::sum, group.size(), seed + turn, i)));
        }
      }
    };
    std::jthread other([&] { work(*second, 10'000); });
    work(*world, 20'000);
  });
}

TEST_P(Conformance, MessagesArriveInOrder) {
  run([](const std::shared_ptr<Group>& group) {
    const int n = group->size();
    if (n == 1) return;
    const int next = (group->rank() + 1) % n;
    const int previous = (group->rank() + n - 1) % n;
    // Short messages: everybody may send first, as many as the ring of parcels holds.
    const std::vector<int64_t> sizes = {1, 0, 500, 60'000};
    std::vector<std::unique_ptr<Buffer<float>>> sent;
    for (size_t k = 0; k < sizes.size(); ++k) {
      sent.push_back(std::make_unique<Buffer<float>>(*group, sizes[k], k % 2 == 1));
      sent.back()->fill(k, group->rank());
      group->send(sent.back()->data(), sizes[k], DType::f32, next, static_cast<int>(k));
      sent.back()->fill(999, group->rank());  // sent is sent
    }
    for (size_t k = 0; k < sizes.size(); ++k) {
      Buffer<float> got(*group, sizes[k], k % 2 == 0);
      group->recv(got.data(), sizes[k], DType::f32, previous, static_cast<int>(k));
      for (int64_t i = 0; i < sizes[k]; ++i) ASSERT_EQ(got[i], value<float>(k, previous, i));
    }
    // Around the ring, from rank to rank; heap memory, then a message of many parcels.
    for (const bool in_heap : {true, false}) {
      const int64_t count = 3'000'017;
      Buffer<float> x(*group, count, in_heap);
      if (group->rank() == 0) {
        x.fill(7, 0);
        group->send(x.data(), count, DType::f32, next);
      } else {
        group->recv(x.data(), count, DType::f32, previous);
        for (int64_t i = 0; i < count; i += 101) ASSERT_EQ(x[i], value<float>(7, 0, i));
        if (next != 0) group->send(x.data(), count, DType::f32, next);
      }
    }
    group->barrier();
  });
}

// Direct all-reduce: 2 (N-1)/N of the bytes, odd counts and all.
TEST_P(Conformance, LedgerEqualsThePlan) {
  run([](const std::shared_ptr<Group>& group) {
    std::vector<std::vector<plan::LeafRange>> by_rank;
    for (int r = 0; r < group->size(); ++r) by_rank.push_back({{r, r + 1}});
    const auto sum = plan::plan_sum(group->size(), by_rank);
    for (const int64_t count : {0, 1, 64, 65, 1001, 4096}) {
      Buffer<float> x(*group, count, true);
      x.fill(0, group->rank());
      group->reset_ledger();
      group->all_reduce(x.data(), count, DType::f32);
      EXPECT_EQ(group->ledger()[Operation::all_reduce].bytes,
                plan::all_reduce_bytes(sum, group->rank(), count, 4))
          << count;
      EXPECT_EQ(group->ledger()[Operation::all_reduce].calls, 1);
      EXPECT_GT(group->ledger()[Operation::all_reduce].seconds, 0);
    }
  });
}

}  // namespace
}  // namespace lockstep::net::testing
