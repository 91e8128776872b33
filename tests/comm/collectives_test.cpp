// Every collective on 1 to 4 ranks, on sizes that divide nothing, in ordinary and in heap memory.
#include <vector>

#include "tests/comm/on_ranks.h"

namespace lockstep {
namespace {

using test::in_heap;
using test::numbers;
using test::on_ranks;
using test::same_bits;

const std::vector<int64_t> kCounts = {0, 1, 5, 63, 1021, 20'011};

/// Calls `body` for ordinary tensors and for heap tensors: `place` puts a tensor where it says.
void both_memories(ProcessGroup& group,
                   const std::function<void(const std::function<at::Tensor(at::Tensor)>&)>& body) {
  body([](at::Tensor x) { return x.clone(); });
  body([&](at::Tensor x) { return in_heap(group, x); });
}

at::Tensor sum_of_all(int size, int64_t count, at::ScalarType type = at::kFloat) {
  at::Tensor sum = numbers(0, count, type);
  for (int r = 1; r < size; ++r) sum += numbers(r, count, type);
  return sum;
}

TEST(Collectives, AllReduceSumsAndFindsExtremes) {
  on_ranks({1, 2, 3, 4}, [](ProcessGroup& group) {
    for (const int64_t count : kCounts) {
      both_memories(group, [&](const auto& place) {
        at::Tensor x = place(numbers(group.rank(), count));
        group.all_reduce(x).wait();
        EXPECT_TRUE(same_bits(x, sum_of_all(group.size(), count))) << count;

        at::Tensor high = place(numbers(group.rank(), count));
        group.all_reduce(high, ReduceOp::max).wait();
        EXPECT_TRUE(same_bits(high, numbers(group.size() - 1, count))) << count;

        at::Tensor low = place(numbers(group.rank(), count));
        group.all_reduce(low, ReduceOp::min).wait();
        EXPECT_TRUE(same_bits(low, numbers(0, count))) << count;
      });
    }
  });
}

TEST(Collectives, AllReduceOfEveryType) {
  on_ranks({1, 3}, [](ProcessGroup& group) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kChar,
                                      at::kByte, at::kShort, at::kInt, at::kLong}) {
      at::Tensor x = numbers(group.rank(), 1021, type);
      group.all_reduce(x).wait();
      EXPECT_TRUE(same_bits(x, sum_of_all(group.size(), 1021, type))) << type;
    }
    at::Tensor any = at::zeros({70}, at::kBool);
    any[group.rank()] = true;
    group.all_reduce(any, ReduceOp::max).wait();
    EXPECT_EQ(any.sum().item<int64_t>(), group.size());
  });
}

TEST(Collectives, ReduceScatter) {
  on_ranks({1, 2, 3, 4}, [](ProcessGroup& group) {
    for (const int64_t slice : kCounts) {
      both_memories(group, [&](const auto& place) {
        const int64_t count = slice * group.size();
        at::Tensor in = place(numbers(group.rank(), count));
        at::Tensor out = place(at::zeros({slice}));
        group.reduce_scatter(in, out).wait();
        const at::Tensor sum = sum_of_all(group.size(), count);
        EXPECT_TRUE(same_bits(out, sum.narrow(0, slice * group.rank(), slice))) << slice;
        EXPECT_TRUE(same_bits(in, numbers(group.rank(), count))) << "the input was changed";
      });
    }
  });
}

/// Rank r's part has 7 r^2 elements, so rank 0 has none; the last rank of four has 63.
std::vector<int64_t> uneven_counts(int size) {
  std::vector<int64_t> counts;
  for (int r = 0; r < size; ++r) counts.push_back(7 * r * r);
  return counts;
}

int64_t before(const std::vector<int64_t>& counts, int rank) {
  return std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0});
}

TEST(Collectives, UnevenReduceScatterAndAllGather) {
  on_ranks({1, 2, 3, 4}, [](ProcessGroup& group) {
    both_memories(group, [&](const auto& place) {
      const auto counts = uneven_counts(group.size());
      const int64_t total = before(counts, group.size());
      const int64_t first = before(counts, group.rank());
      const int64_t own = counts[group.rank()];

      at::Tensor slice = place(at::zeros({own}));
      group.reduce_scatter_uneven(place(numbers(group.rank(), total)), slice, counts).wait();
      const at::Tensor sum = sum_of_all(group.size(), total);
      EXPECT_TRUE(same_bits(slice, sum.narrow(0, first, own)));

      at::Tensor whole = place(at::zeros({total}));
      group.all_gather_uneven(slice, whole, counts).wait();
      EXPECT_TRUE(same_bits(whole, sum));
    });
  });
}

TEST(Collectives, AllGather) {
  on_ranks({1, 2, 3, 4}, [](ProcessGroup& group) {
    for (const int64_t slice : kCounts) {
      std::vector<at::Tensor> slices;
      for (int r = 0; r < group.size(); ++r) slices.push_back(numbers(r, slice, at::kShort));
      const at::Tensor all = at::cat(slices);
      both_memories(group, [&](const auto& place) {
        at::Tensor out = place(at::zeros({slice * group.size()}, at::kShort));
        group.all_gather(place(slices[group.rank()]), out).wait();
        EXPECT_TRUE(same_bits(out, all)) << slice;

        at::Tensor in_place = place(at::zeros({slice * group.size()}, at::kShort));
        at::Tensor part = in_place.narrow(0, slice * group.rank(), slice);
        part.copy_(slices[group.rank()]);
        group.all_gather(part, in_place).wait();
        EXPECT_TRUE(same_bits(in_place, all)) << slice << " in place";
      });
    }
  });
}

TEST(Collectives, BroadcastFromEachRoot) {
  on_ranks({1, 2, 3, 4}, [](ProcessGroup& group) {
    for (const int64_t count : kCounts) {
      for (int root = 0; root < group.size(); ++root) {
        both_memories(group, [&](const auto& place) {
          at::Tensor x = place(numbers(group.rank(), count, at::kDouble));
          group.broadcast(x, root).wait();
          EXPECT_TRUE(same_bits(x, numbers(root, count, at::kDouble))) << count << " from " << root;
        });
      }
    }
  });
}

TEST(Collectives, AllToAllWithUnevenCounts) {
  // Rank a sends 11 a + 3 b elements to rank b, all equal to 10 a + b; none from rank 0 to itself.
  const auto count = [](int a, int b) { return int64_t{11} * a + 3 * b; };
  on_ranks({1, 2, 3, 4}, [&](ProcessGroup& group) {
    both_memories(group, [&](const auto& place) {
      std::vector<int64_t> send_counts, recv_counts;
      std::vector<at::Tensor> sent, expected;
      const int me = group.rank();
      for (int r = 0; r < group.size(); ++r) {
        send_counts.push_back(count(me, r));
        recv_counts.push_back(count(r, me));
        sent.push_back(at::full({count(me, r)}, 10 * me + r, at::kInt));
        expected.push_back(at::full({count(r, me)}, 10 * r + me, at::kInt));
      }
      at::Tensor out = place(at::zeros_like(at::cat(expected)));
      group.all_to_all(place(at::cat(sent)), send_counts, out, recv_counts).wait();
      EXPECT_TRUE(same_bits(out, at::cat(expected)));
    });
  });
}

TEST(Collectives, MessagesRoundTheRing) {
  on_ranks({2, 3, 4}, [](ProcessGroup& group) {
    const int next = (group.rank() + 1) % group.size();
    const int previous = (group.rank() + group.size() - 1) % group.size();
    for (const int64_t count : kCounts) {
      at::Tensor token = group.rank() == 0 ? numbers(7, count) : at::zeros({count});
      // Rank 0 sends first, the others receive first: nobody waits for itself.
      if (group.rank() == 0) group.send(token, next, /*tag=*/3).wait();
      group.recv(token, previous, /*tag=*/3).wait();
      if (group.rank() != 0) group.send(token, next, /*tag=*/3).wait();
      EXPECT_TRUE(same_bits(token, numbers(7, count))) << count;
    }
  });
}

TEST(Collectives, TextsOfAnyLength) {
  on_ranks({1, 2, 3, 4}, [](ProcessGroup& group) {
    const auto text = [](int rank) {
      std::string repeated;
      for (int i = 0; i < 1000 * rank; ++i) repeated += std::string(rank, 'a' + rank);
      return repeated;
    };
    const auto all = group.gather_text(text(group.rank()));
    ASSERT_EQ(static_cast<int>(all.size()), group.size());
    for (int r = 0; r < group.size(); ++r) EXPECT_EQ(all[r], text(r));
  });
}

TEST(Collectives, EmptyAndScalarTensorsAmongOthers) {
  on_ranks({1, 2, 3}, [](ProcessGroup& group) {
    const int size = group.size();
    for (int i = 0; i < 100; ++i) {
      at::Tensor none = at::zeros({0, 3});
      at::Tensor scalar = at::scalar_tensor(group.rank() + i, at::kDouble);
      at::Tensor row = at::full({3}, i);
      at::Tensor nothing = at::zeros({0});
      at::Tensor all = at::zeros({size}, at::kDouble);
      std::vector<Work> works;
      works.push_back(group.all_reduce(none));
      works.push_back(group.broadcast(none, size - 1));
      works.push_back(group.all_gather(scalar, all));
      works.push_back(group.all_reduce(scalar));
      works.push_back(group.reduce_scatter(nothing, at::zeros({0, 3})));
      works.push_back(group.all_gather(nothing, at::zeros({0})));
      works.push_back(group.all_reduce(row));
      for (Work& work : works) work.wait();
      EXPECT_EQ(scalar.dim(), 0);
      EXPECT_EQ(scalar.item<double>(), size * i + size * (size - 1) / 2);
      EXPECT_EQ(all[size - 1].item<double>(), size - 1 + i);
      EXPECT_EQ(row[2].item<float>(), static_cast<float>(size * i));
    }
  });
}

TEST(Collectives, SubgroupsTalkAmongThemselves) {
  on_ranks({3, 4}, [](ProcessGroup& group) {
    // Odd and even ranks; then one group that leaves rank 0 out and turns the order round.
    std::vector<int> parity;
    for (int r = group.rank() % 2; r < group.size(); r += 2) parity.push_back(r);
    const auto half = group.subgroup(parity, "half");
    ASSERT_TRUE(half);
    EXPECT_EQ(half->name(), "half");
    EXPECT_EQ(half->size(), static_cast<int>(parity.size()));
    at::Tensor x = at::full({300}, group.rank(), at::kLong);
    half->all_reduce(x).wait();
    EXPECT_EQ(x[299].item<int64_t>(), std::accumulate(parity.begin(), parity.end(), 0));

    std::vector<int> reversed;
    for (int r = group.size() - 1; r > 0; --r) reversed.push_back(r);
    const auto tail = group.subgroup(reversed, "tail");
    ASSERT_EQ(tail == nullptr, group.rank() == 0);
    if (tail) {
      EXPECT_EQ(tail->rank(), group.size() - 1 - group.rank());
      at::Tensor y = at::full({5}, group.rank());
      tail->broadcast(y, 0).wait();
      EXPECT_EQ(y[4].item<float>(), static_cast<float>(group.size() - 1));
    }
    group.barrier();
  });
}

TEST(Collectives, HeapTensorsAreZeroEvenWhenRecycled) {
  on_ranks({1, 2}, [](ProcessGroup& group) {
    for (int i = 0; i < 4; ++i) {
      at::Tensor x = group.allocate({3, 1001}, at::kDouble);
      EXPECT_EQ(x.sizes(), at::IntArrayRef({3, 1001}));
      EXPECT_EQ(x.count_nonzero().item<int64_t>(), 0);
      x.fill_(7);
    }
    EXPECT_EQ(group.allocate({0, 4}).numel(), 0);
    EXPECT_EQ(group.allocate({}).dim(), 0);
    // A view keeps the block alive.
    at::Tensor view;
    {
      at::Tensor x = group.allocate({100});
      x.fill_(3);
      view = x.narrow(0, 50, 10);
    }
    at::Tensor other = group.allocate({100});
    EXPECT_EQ(view.sum().item<float>(), 30);
  });
}

}  // namespace
}  // namespace lockstep
