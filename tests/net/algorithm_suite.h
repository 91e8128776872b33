/// Collectives by every algorithm, over the messages of an engine: one suite, instantiated for
/// each. To be included once in a program.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <ostream>

#include "lockstep/net/transport.h"
#include "lockstep/plan/collective_steps.h"
#include "tests/net/ranks.h"
#include "tests/net/values.h"
#include "tests/net/wire.h"

namespace lockstep::net::testing {

using plan::Algorithm;
using plan::Collective;

struct AlgorithmCase {
  Engine engine;  // of the region
  int ranks;
  EndpointOptions options = patient();
  int hosts = 1;  // with a region each: wire.h

  bool sends_messages() const { return options.engine != nullptr || hosts > 1; }
};

/// "shm3", "gloo_shm3": an engine of messages comes first.
inline std::string name_of(const AlgorithmCase& which) {
  const std::string messages =
      which.options.engine ? std::string(which.options.engine->name()) + "_" : "";
  if (which.hosts > 1) {
    return "hosts" + std::to_string(which.hosts) + "of" + std::to_string(which.ranks / which.hosts);
  }
  return messages + name_of(which.engine) + std::to_string(which.ranks);
}

inline void PrintTo(const AlgorithmCase& which, std::ostream* out) { *out << name_of(which); }

/// Two ranks a host where that divides them, else all on one.
inline plan::AlgorithmTable table_of(Collective operation, Algorithm algorithm, int ranks) {
  plan::AlgorithmTable table{.rules = {{operation, algorithm}}, .hosts = {}};
  const int each = ranks % 2 == 0 ? 2 : ranks;
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank % each == 0) table.hosts.emplace_back();
    table.hosts.back().push_back(rank);
  }
  return table;
}

class Algorithms : public ::testing::TestWithParam<AlgorithmCase> {
 protected:
  /// Runs `body` once for each algorithm of `operation`.
  void run(Collective operation, const std::function<void(Group&, Algorithm)>& body) {
    const auto every = [&](const std::shared_ptr<Group>& group) {
      for (const Algorithm algorithm : plan::algorithms_of(operation)) {
        SCOPED_TRACE(plan::name_of(algorithm));
        group->set_algorithms(table_of(operation, algorithm, group->size()));
        body(*group, algorithm);
      }
    };
    if (const int hosts = GetParam().hosts; hosts > 1) {
      run_on_hosts(hosts, GetParam().ranks / hosts, every, GetParam().options);
    } else {
      run_on(GetParam().engine, GetParam().ranks, every, GetParam().options);
    }
  }
};

/// Zero, one, fewer than ranks, prime, not divisible, more than a piece of the ring of parcels.
inline const std::vector<int64_t> kSizes = {0, 1, 3, 61, 1000, 4099, 150'001};

/// A whole number below 16: sums of up to 8 are exact in every type, in any order.
template <class T>
T whole(int source, int64_t index) {
  const auto number = static_cast<int>(draw(7, static_cast<uint64_t>(source), index) % 16);
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>) {
    T half;
    narrow(static_cast<float>(number), half);
    return half;
  } else {
    return static_cast<T>(number);
  }
}

template <class T>
T sum_of_whole(int ranks, int64_t index) {
  int sum = 0;
  for (int r = 0; r < ranks; ++r) sum += whole<int>(r, index);
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>) {
    T half;
    narrow(static_cast<float>(sum), half);
    return half;
  } else {
    return static_cast<T>(sum);
  }
}

template <class T>
void fill_whole(Buffer<T>& x, int source) {
  for (int64_t i = 0; i < x.count(); ++i) x[i] = whole<T>(source, i);
}

template <class T>
void check_exact_sums(Group& group) {
  for (const bool in_heap : {true, false}) {
    for (const int64_t count : kSizes) {
      if (sizeof(T) != 4 && count > 5000) continue;
      Buffer<T> x(group, count, in_heap, static_cast<int>(count % 2));
      fill_whole(x, group.rank());
      group.all_reduce(x.data(), count, Traits<T>::type);
      for (int64_t i = 0; i < count; ++i) {
        ASSERT_TRUE(same_bits(x[i], sum_of_whole<T>(group.size(), i)))
            << net::name_of(Traits<T>::type) << " " << i << " of " << count
            << (in_heap ? " in the heap" : " in ordinary memory");
      }
    }
  }
}

TEST_P(Algorithms, SumsOfWholeNumbersAreExact) {
  run(Collective::all_reduce, [](Group& group, Algorithm) {
    check_exact_sums<float>(group);
    check_exact_sums<double>(group);
    check_exact_sums<Float16>(group);
    check_exact_sums<BFloat16>(group);
    check_exact_sums<uint8_t>(group);
    check_exact_sums<int64_t>(group);
  });
}

TEST_P(Algorithms, MaximumAndAverageAreTheDefinition) {
  run(Collective::all_reduce, [](Group& group, Algorithm) {
    const int64_t count = 1001;
    Buffer<float> x(group, count, true);
    x.fill(3, group.rank());
    group.all_reduce(x.data(), count, DType::f32, ReduceOp::max);
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(x[i], (expected<float>(ReduceOp::max, group.size(), 3, i))) << i;
    }
    fill_whole(x, group.rank());
    group.all_reduce(x.data(), count, DType::f32, ReduceOp::average);
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(x[i], sum_of_whole<float>(group.size(), i) / static_cast<float>(group.size()));
    }
    Buffer<Float16> half(group, 5, true);
    for (int64_t i = 0; i < 5; ++i) narrow(40000.0f, half[i]);
    group.all_reduce(half.data(), 5, DType::f16, ReduceOp::average);
    ASSERT_EQ(widen(half[4]), 40000.0f) << "COLL-5: the sum overflowed fp16";
  });
}

/// The algorithms that the plan calls canonical give the tree's bits; the others differ somewhere,
/// so that this test is known to tell them apart, but never between ranks.
TEST_P(Algorithms, CanonicalOnesGiveTheBitsOfTheTree) {
  run(Collective::all_reduce, [](Group& group, Algorithm algorithm) {
    const bool canonical = algorithm == Algorithm::direct || algorithm == Algorithm::halving ||
                           algorithm == Algorithm::binomial ||
                           algorithm == Algorithm::hierarchical || group.size() <= 2 ||
                           (group.size() == 3 && algorithm == Algorithm::tree);
    const int64_t count = 4099;
    Buffer<float> x(group, count, true);
    x.fill(5, group.rank());
    group.all_reduce(x.data(), count, DType::f32);
    int64_t others = 0;
    for (int64_t i = 0; i < count; ++i) {
      if (!same_bits(x[i], expected<float>(ReduceOp::sum, group.size(), 5, i))) ++others;
    }
    EXPECT_EQ(others == 0, canonical) << others;
    std::vector<float> of_rank_0(x.data(), x.data() + count);
    group.broadcast(of_rank_0.data(), count, DType::f32, 0);
    EXPECT_EQ(std::memcmp(of_rank_0.data(), x.data(), count * sizeof(float)), 0);
  });
}

TEST_P(Algorithms, ShortTypesAreRoundedOnce) {
  run(Collective::all_reduce, [](Group& group, Algorithm algorithm) {
    if (group.size() != 4) return;
    const std::vector<float> values = {256, 1, 1, 1};
    Buffer<BFloat16> x(group, 3, true);
    for (int64_t i = 0; i < 3; ++i) narrow(values[static_cast<size_t>(group.rank())], x[i]);
    group.all_reduce(x.data(), 3, DType::bf16);
    EXPECT_EQ(widen(x[2]), 260.0f) << plan::name_of(algorithm);
  });
}

/// Slices of odd lengths, some empty.
inline std::vector<int64_t> uneven(int ranks, int64_t most) {
  std::vector<int64_t> counts;
  for (int r = 0; r < ranks; ++r) counts.push_back(r % 3 == 1 ? 0 : 1 + (r * 37 + 11) % most);
  return counts;
}

TEST_P(Algorithms, ReduceScatterOfUnevenSlices) {
  run(Collective::reduce_scatter, [](Group& group, Algorithm) {
    for (const int64_t most : {int64_t{7}, int64_t{5000}}) {
      const std::vector<int64_t> counts = uneven(group.size(), most);
      const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
      const int64_t before =
          std::accumulate(counts.begin(), counts.begin() + group.rank(), int64_t{0});
      Buffer<float> in(group, total, most > 7);
      Buffer<float> out(group, counts[static_cast<size_t>(group.rank())], true);
      fill_whole(in, group.rank());
      group.reduce_scatter(in.data(), out.data(), counts, DType::f32);
      for (int64_t i = 0; i < out.count(); ++i) {
        ASSERT_EQ(out[i], sum_of_whole<float>(group.size(), before + i)) << i;
      }
      for (int64_t i = 0; i < total; ++i) {
        ASSERT_EQ(in[i], whole<float>(group.rank(), i)) << "the input was written";
      }
    }
  });
}

TEST_P(Algorithms, AllGatherOfUnevenSlices) {
  run(Collective::all_gather, [](Group& group, Algorithm) {
    for (const int64_t most : {int64_t{7}, int64_t{5000}}) {
      const std::vector<int64_t> counts = uneven(group.size(), most);
      const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
      Buffer<int32_t> in(group, counts[static_cast<size_t>(group.rank())], true);
      Buffer<int32_t> out(group, total, most > 7);
      in.fill(1, group.rank());
      group.all_gather(in.data(), out.data(), counts, DType::i32);
      int64_t at = 0;
      for (int r = 0; r < group.size(); ++r) {
        for (int64_t i = 0; i < counts[static_cast<size_t>(r)]; ++i, ++at) {
          ASSERT_EQ(out[at], value<int32_t>(1, r, i)) << "rank " << r << " element " << i;
        }
      }
    }
  });
}

TEST_P(Algorithms, BroadcastFromEveryRoot) {
  run(Collective::broadcast, [](Group& group, Algorithm) {
    for (int root = 0; root < group.size(); ++root) {
      for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{4099}, int64_t{300'000}}) {
        if (count > 5000 && root > 0) continue;
        Buffer<float> x(group, count, root % 2 == 0);
        x.fill(2, group.rank());
        group.broadcast(x.data(), count, DType::f32, root);
        for (int64_t i = 0; i < count; ++i) {
          ASSERT_EQ(x[i], value<float>(2, root, i)) << "root " << root << " element " << i;
        }
      }
    }
  });
}

/// Ranks exchange the very messages of an all-reduce, so they end with its bits.
TEST_P(Algorithms, AReduceScatterAndAnAllGatherAreAnAllReduce) {
  run(Collective::reduce_scatter, [](Group& group, Algorithm algorithm) {
    group.set_algorithms({.rules = {{Collective::reduce_scatter, algorithm},
                                    {Collective::all_gather, algorithm},
                                    {Collective::all_reduce, algorithm}},
                          .hosts = {}});
    for (const int64_t count : {int64_t{1}, int64_t{1000}, int64_t{4099}}) {
      std::vector<int64_t> counts;
      for (int r = 0; r < group.size(); ++r) {
        counts.push_back(plan::slice_of(count, group.size(), r).size());
      }
      std::vector<float> whole;
      for (int64_t i = 0; i < count; ++i) whole.push_back(value<float>(8, group.rank(), i));
      const std::vector<float> terms = whole;
      std::vector<float> slice(static_cast<size_t>(counts[static_cast<size_t>(group.rank())]));
      std::vector<float> gathered(terms.size());
      group.reduce_scatter(terms.data(), slice.data(), counts, DType::f32);
      group.all_gather(slice.data(), gathered.data(), counts, DType::f32);
      group.all_reduce(whole.data(), count, DType::f32);
      EXPECT_EQ(std::memcmp(gathered.data(), whole.data(), whole.size() * sizeof(float)), 0)
          << count << " elements";
    }
  });
}

TEST_P(Algorithms, AllToAllOfEqualAndUnevenBlocks) {
  run(Collective::all_to_all, [](Group& group, Algorithm) {
    const int n = group.size();
    for (const bool equal : {true, false}) {
      // From r to p: as many either way, so that a rank knows what it receives.
      const auto count = [&](int r, int p) { return equal ? 100 : (r + p) % 4 * 1000; };
      std::vector<int64_t> sends;
      std::vector<int64_t> receives;
      for (int p = 0; p < n; ++p) {
        sends.push_back(count(group.rank(), p));
        receives.push_back(count(p, group.rank()));
      }
      const int64_t total = std::accumulate(sends.begin(), sends.end(), int64_t{0});
      Buffer<int32_t> in(group, total, equal);
      Buffer<int32_t> out(group, total, true);
      in.fill(4, group.rank());
      group.all_to_all(in.data(), sends, out.data(), receives, DType::i32);
      int64_t at = 0;
      for (int r = 0; r < n; ++r) {
        int64_t start = 0;
        for (int p = 0; p < group.rank(); ++p) start += count(r, p);
        for (int64_t i = 0; i < receives[static_cast<size_t>(r)]; ++i, ++at) {
          ASSERT_EQ(out[at], value<int32_t>(4, r, start + i)) << "from rank " << r;
        }
      }
    }
  });
}

/// What each rank counted where it copied is what its plan says; no rank does another's share.
TEST_P(Algorithms, EveryRankCountsWhatItsPlanSays) {
  const bool over_region = !GetParam().sends_messages();
  run(Collective::all_reduce, [over_region](Group& group, Algorithm algorithm) {
    if (algorithm == Algorithm::direct && over_region) return;  // one pass over memory: Conformance
    for (const int64_t count : {int64_t{64}, int64_t{4099}, int64_t{300'000}}) {
      const auto plan = algorithm == Algorithm::hierarchical
                            ? plan::plan_hierarchical_all_reduce(group.algorithms().hosts, count)
                            : plan::plan_all_reduce(algorithm, group.size(), count);
      Buffer<float> x(group, count, true);
      fill_whole(x, group.rank());
      group.reset_ledger();
      group.all_reduce(x.data(), count, DType::f32);
      EXPECT_EQ(group.ledger()[Operation::all_reduce].bytes,
                plan::bytes_received(plan, group.rank(), sizeof(float)))
          << count;
    }
  });
}

/// Ranks that bring several terms, one or none: every algorithm keeps the tree over leaves.
TEST_P(Algorithms, TermsOfLeavesKeepTheTree) {
  run(Collective::all_reduce, [](Group& group, Algorithm algorithm) {
    if (algorithm == Algorithm::ring || algorithm == Algorithm::tree ||
        algorithm == Algorithm::double_tree) {
      return;  // not canonical over ranks either
    }
    const int64_t count = 1003;
    for (const int leaves : {1, 5, 6, 8, 16}) {
      const int n = group.size();
      const int lo = leaves * group.rank() / n;
      const int hi = leaves * (group.rank() + 1) / n;
      std::vector<Buffer<float>> memory;
      std::vector<Term> terms;
      for (const plan::LeafRange held : plan::maximal_subtrees(leaves, {lo, hi})) {
        memory.emplace_back(group, count, memory.size() % 2 == 0);
        for (int64_t i = 0; i < count; ++i) {
          memory.back()[i] = tree_value(ReduceOp::sum, held.lo, held.hi,
                                        [&](int leaf) { return value<float>(9, leaf, i); });
        }
        terms.push_back({held, memory.back().data()});
      }
      Buffer<float> apart(group, count, true);
      float* const result = memory.empty() || leaves % 2 == 1 ? apart.data() : memory.back().data();
      group.all_reduce_terms(terms, leaves, result, count, DType::f32);
      for (int64_t i = 0; i < count; ++i) {
        ASSERT_TRUE(same_bits(result[i], expected<float>(ReduceOp::sum, leaves, 9, i)))
            << leaves << " leaves, element " << i;
      }
    }
  });
}

/// One term a rank, in order, and still not added as four ranks would be: [0,4) + ((4 + 5) +
/// [6,8)).
TEST_P(Algorithms, OneTermEachOfUnequalLeavesKeepsTheTree) {
  run(Collective::all_reduce, [](Group& group, Algorithm) {
    if (group.size() != 4) return;
    const std::vector<plan::LeafRange> held = {{0, 4}, {4, 5}, {5, 6}, {6, 8}};
    const plan::LeafRange mine = held[static_cast<size_t>(group.rank())];
    Buffer<float> x(group, 1003, true);
    for (int64_t i = 0; i < x.count(); ++i) {
      x[i] = tree_value(ReduceOp::sum, mine.lo, mine.hi,
                        [&](int leaf) { return value<float>(9, leaf, i); });
    }
    const Term term{mine, x.data()};
    group.all_reduce_terms(std::span(&term, 1), 8, x.data(), x.count(), DType::f32);
    for (int64_t i = 0; i < x.count(); ++i) {
      ASSERT_TRUE(same_bits(x[i], expected<float>(ReduceOp::sum, 8, 9, i))) << i;
    }
  });
}

TEST_P(Algorithms, ReduceScatterOfTermsKeepsTheTree) {
  run(Collective::reduce_scatter, [](Group& group, Algorithm algorithm) {
    if (algorithm == Algorithm::ring) return;
    const int leaves = 6;
    const int n = group.size();
    const std::vector<int64_t> counts = uneven(n, 300);
    const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    const int64_t before =
        std::accumulate(counts.begin(), counts.begin() + group.rank(), int64_t{0});
    std::vector<Buffer<float>> memory;
    std::vector<Term> terms;
    for (const plan::LeafRange held : plan::maximal_subtrees(
             leaves, {leaves * group.rank() / n, leaves * (group.rank() + 1) / n})) {
      memory.emplace_back(group, total, true);
      for (int64_t i = 0; i < total; ++i) {
        memory.back()[i] = tree_value(ReduceOp::sum, held.lo, held.hi,
                                      [&](int leaf) { return value<float>(9, leaf, i); });
      }
      terms.push_back({held, memory.back().data()});
    }
    Buffer<float> out(group, counts[static_cast<size_t>(group.rank())], false);
    group.reduce_scatter_terms(terms, leaves, out.data(), counts, DType::f32);
    for (int64_t i = 0; i < out.count(); ++i) {
      ASSERT_TRUE(same_bits(out[i], expected<float>(ReduceOp::sum, leaves, 9, before + i)));
    }
  });
}

/// A message that nobody has received yet does not get into a plan's way.
TEST_P(Algorithms, MessagesOfTheUserAreApart) {
  run(Collective::all_reduce, [](Group& group, Algorithm) {
    const int n = group.size();
    if (n == 1) return;
    const int next = (group.rank() + 1) % n;
    const int previous = (group.rank() + n - 1) % n;
    const int64_t mine = 1000 + group.rank();
    group.send(&mine, 1, DType::i64, next);
    float one = 1;
    group.all_reduce(&one, 1, DType::f32);
    EXPECT_EQ(one, static_cast<float>(n));
    int64_t theirs = 0;
    group.recv(&theirs, 1, DType::i64, previous);
    EXPECT_EQ(theirs, 1000 + previous);
  });
}

TEST_P(Algorithms, SubgroupsKeepTheTable) {
  run(Collective::all_reduce, [](Group& group, Algorithm algorithm) {
    if (group.size() < 3 || algorithm == Algorithm::hierarchical) return;
    std::vector<int> ranks(static_cast<size_t>(group.size() - 1));
    std::iota(ranks.begin(), ranks.end(), 1);
    const auto sub = group.subgroup(ranks, "all but the first");
    if (!sub) return;
    Buffer<float> x(*sub, 1000, true);
    fill_whole(x, sub->rank());
    sub->all_reduce(x.data(), 1000, DType::f32);
    for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(x[i], sum_of_whole<float>(sub->size(), i));
    EXPECT_EQ(sub->algorithms().choose(Collective::all_reduce, 4000), algorithm);
  });
}

}  // namespace lockstep::net::testing
