// Attention over divided sequences: the plain formula, one result on every layout, the plan's
// bytes.
#include "lockstep/parallel/context/ring_attention.h"

#include "lockstep/base/error.h"
#include "lockstep/plan/context_bytes.h"
#include "lockstep/torch_inside/gemm_counter.h"
#include "lockstep/torch_inside/saved_tensors.h"
#include "tests/parallel/grains.h"

namespace lockstep::parallel {
namespace {

struct Sizes {
  int grains;
  int64_t n, G, h, K;  // a grain has 2 h tokens
  int64_t sequence() const { return 2 * h * grains; }
  std::vector<int64_t> queries() const { return {grains, n, G, 2 * h, K}; }
  std::vector<int64_t> keys() const { return {grains, n, 2 * h, K}; }
};

ContextGroup together(int grains) { return {nullptr, plan::context_place(grains, 1, 0)}; }

ContextGroup divided_by(ProcessGroup& ranks, int grains) {
  return {std::shared_ptr<ProcessGroup>(&ranks, [](ProcessGroup*) {}),
          plan::context_place(grains, ranks.size(), ranks.rank())};
}

at::Tensor own(const ContextGroup& group, const at::Tensor& whole) {
  return whole.narrow(0, group.place.local.lo, group.place.local.size());
}

RingOptions plain(const Sizes& size) {
  return {.scale = 1 / std::sqrt(static_cast<double>(size.K)), .keep = {}};
}

/// A quarter is dropped, by the place in [n, G, S, S].
RingOptions dropping(const Sizes& size) {
  RingOptions options = plain(size);
  options.keep = [size](plan::TokenRange queries, plan::TokenRange keys) {
    const int64_t S = size.sequence();
    at::Tensor keep =
        at::empty({size.n, size.G, queries.hi - queries.lo, keys.hi - keys.lo}, at::kFloat);
    float* to = keep.data_ptr<float>();
    for (int64_t head = 0; head < size.n * size.G; ++head) {
      for (int64_t row = queries.lo; row < queries.hi; ++row) {
        for (int64_t column = keys.lo; column < keys.hi; ++column) {
          const auto index = static_cast<uint64_t>((head * S + row) * S + column);
          *to++ = base::RandomKey(11).below(index, 4) == 0 ? 0.0f : 4.0f / 3.0f;
        }
      }
    }
    return keep;
  };
  return options;
}

struct Attention {
  Attention(const ContextGroup& group, const Sizes& size, const RingOptions& options,
            double magnitude = 1)
      : q(leaf(own(group, values(1, size.queries()) * magnitude))),
        k(leaf(own(group, values(2, size.keys()) * magnitude))),
        v(leaf(own(group, values(3, size.keys())))) {
    out = ring_attention(group, q, k, v, options);
    out.backward(own(group, values(4, size.queries())));
  }
  std::vector<at::Tensor> results() const { return {out.detach(), q.grad(), k.grad(), v.grad()}; }

  at::Tensor q, k, v, out;
};

const std::vector<const char*> kResults = {"result", "dq", "dk", "dv"};

// Attention of all tokens at once, in double. Tokens stay in the order of grains: who may see whom
// is told by their positions.
struct Reference {
  Reference(const Attention& of, const Sizes& size, const RingOptions& options) {
    const int64_t S = size.sequence(), n = size.n, G = size.G, K = size.K;
    const auto queries = [&](const at::Tensor& x) {
      return x.detach().to(at::kDouble).permute({1, 2, 0, 3, 4}).reshape({n, G, S, K});
    };
    const auto keys = [&](const at::Tensor& x) {
      return x.detach().to(at::kDouble).permute({1, 0, 2, 3}).reshape({n, 1, S, K});
    };
    std::vector<at::Tensor> runs;
    for (int c = 0; c < size.grains; ++c) {
      for (const plan::TokenRange run : plan::tokens_of(c, size.grains, S)) {
        runs.push_back(at::arange(run.lo, run.hi));
      }
    }
    const at::Tensor at = at::cat(runs);
    const at::Tensor hidden = at.unsqueeze(0) > at.unsqueeze(1);  // key after query
    at::Tensor keep = at::ones({n, G, S, S}, at::kDouble);
    if (options.keep) {
      keep = options.keep({0, S}, {0, S}).to(at::kDouble).index_select(2, at).index_select(3, at);
    }

    const at::Tensor q = queries(of.q).requires_grad_(), k = keys(of.k).requires_grad_(),
                     v = keys(of.v).requires_grad_();
    const at::Tensor scores = at::matmul(q, k.transpose(2, 3)) * options.scale;
    const at::Tensor P = at::softmax(scores.masked_fill(hidden, -INFINITY), -1);
    const at::Tensor out = at::matmul(P * keep, v);
    const at::Tensor dout = queries(values(4, size.queries()));
    out.backward(dout);

    // Bounds, with u = 2^-24 and A the largest sum of a row's |scale q k|. A score is off by (K +
    // 1) u A; the running maximum and the logarithm of the sum add differences of at most 2 A + log
    // S, rounded a few times; a row's S terms and 2 C + 1 changes of its maximum round once or
    // thrice each. Probabilities, and what is summed with them, are then off by a share of at most
    // r:
    const at::NoGradGuard no_gradients;
    const at::Tensor A =
        (at::matmul(q.abs(), k.abs().transpose(2, 3)) * options.scale).amax(-1, true);
    const double terms = 4.0 * static_cast<double>(S) + 4 * std::log(static_cast<double>(S)) +
                         12 * (2 * size.grains + 1) + 2.0 * static_cast<double>(K) + 20;
    const at::Tensor r = 0x1p-24 * (2.0 * static_cast<double>(K + 6) * A + terms);
    const at::Tensor kept = P.detach() * keep;
    const at::Tensor spread = at::matmul(kept, v.abs());
    // dS = P (keep dout v - rowsum(dout out)): each factor has its own share.
    const at::Tensor dscores =
        P.detach() * (keep * at::matmul(dout.abs(), v.abs().transpose(2, 3)) +
                      (dout.abs() * spread).sum(-1, true));
    const at::Tensor of_scores = 4 * options.scale * (r * dscores);
    const auto over_groups = [](const at::Tensor& x) { return x.sum(1, true); };
    exact = {out.detach(), q.grad(), k.grad(), v.grad()};
    bound = {r * spread, at::matmul(of_scores, k.abs()),
             over_groups(at::matmul(of_scores.transpose(2, 3), q.abs())),
             over_groups(2 * at::matmul((r * kept).transpose(2, 3), dout.abs()))};
    for (at::Tensor& x : bound) x = x + 1e-30;
    got = {queries(of.out), queries(of.q.grad()), keys(of.k.grad()), keys(of.v.grad())};
  }
  std::vector<at::Tensor> got, exact, bound;
};

TEST(RingAttention, IsThePlainFormula) {
  for (const int grains : {1, 2, 3, 4}) {
    for (const Sizes size : {Sizes{grains, 2, 1, 5, 3}, Sizes{grains, 3, 2, 1, 3},
                             Sizes{grains, 1, 2, 8, 16}, Sizes{grains, 1, 1, 1, 1}}) {
      for (const bool drops : {false, true}) {
        SCOPED_TRACE(
            base::str(grains, " grains, h ", size.h, ", G ", size.G, drops ? ", drops" : ""));
        const RingOptions options = drops ? dropping(size) : plain(size);
        const Attention whole(together(grains), size, options, 0.25);
        const Reference expected(whole, size, options);
        for (size_t i = 0; i < kResults.size(); ++i) {
          EXPECT_LE(share_of_bound(expected.got[i], expected.exact[i], expected.bound[i]), 1)
              << kResults[i];
        }
      }
    }
  }
}

void expect_one_result(const Sizes& size, std::initializer_list<int> ranks) {
  for (const bool drops : {false, true}) {
    SCOPED_TRACE(base::str("h ", size.h, ", G ", size.G, drops ? ", drops" : ""));
    const RingOptions options = drops ? dropping(size) : plain(size);
    const auto expected = Attention(together(size.grains), size, options).results();
    on_ranks(ranks, [&](ProcessGroup& group_of_ranks) {
      const ContextGroup group = divided_by(group_of_ranks, size.grains);
      const auto got = Attention(group, size, options).results();
      for (size_t i = 0; i < kResults.size(); ++i) {
        EXPECT_TRUE(same_bits(got[i].contiguous(), own(group, expected[i]).contiguous()))
            << kResults[i] << " of rank " << group_of_ranks.rank();
      }
    });
  }
}

TEST(RingAttention, OneResultOnEveryLayout) {
  expect_one_result({4, 2, 2, 5, 3}, {1, 2, 3, 4});
  expect_one_result({4, 3, 1, 1, 3}, {1, 2, 3, 4});
  expect_one_result({4, 2, 2, 16, 24}, {1, 2, 3, 4});  // runs go by the communication thread
  expect_one_result({3, 1, 2, 5, 7}, {1, 2, 3});
  expect_one_result({1, 2, 2, 4, 3}, {1});
}

// A ring that meets the grains in another order: 0 | 2 3 | 1.
TEST(RingAttention, AnotherOrderOfGrainsWouldShow) {
  const Sizes size{4, 2, 2, 5, 3};
  const auto expected = Attention(together(4), size, plain(size)).results();
  on_ranks({3}, [&](ProcessGroup& ranks) {
    ContextGroup group = divided_by(ranks, 4);
    group.place.by_rank = {{0, 1}, {2, 4}, {1, 2}};
    group.place.local = group.place.by_rank[static_cast<size_t>(ranks.rank())];
    const auto other = Attention(group, size, plain(size)).results();
    for (const size_t i : {0, 1, 2, 3}) {
      EXPECT_FALSE(same_bits(other[i].contiguous(), own(group, expected[i]).contiguous()))
          << kResults[i] << ": the test of one result would be blind";
      EXPECT_TRUE(at::allclose(other[i], own(group, expected[i]), 1e-3, 1e-3)) << kResults[i];
    }
  });
}

TEST(RingAttention, StaysFiniteWhereScoresAreLarge) {
  const Sizes size{2, 2, 2, 3, 5};
  for (const at::Tensor& x : Attention(together(2), size, plain(size), 1e3).results()) {
    EXPECT_TRUE(at::isfinite(x).all().item<bool>());
  }
}

TEST(RingAttention, LedgerEqualsThePlan) {
  for (const int grains : {4, 5}) {
    const Sizes size{grains, 3, 2, 5, 7};
    on_ranks({2, 3, 4}, [&](ProcessGroup& ranks) {
      const ContextGroup group = divided_by(ranks, grains);
      const plan::ContextBytes planned = plan::context_bytes(
          {.sequence = size.sequence(), .heads = size.n, .width = size.K}, group.place);
      const at::Tensor q = leaf(own(group, values(1, size.queries())));
      const at::Tensor k = leaf(own(group, values(2, size.keys())));
      ranks.reset_totals();
      const at::Tensor out = ring_attention(group, q, k, k, plain(size)).sum();
      EXPECT_EQ(ranks.totals().bytes, planned.forward) << "rank " << ranks.rank();
      ranks.reset_totals();
      out.backward();
      EXPECT_EQ(ranks.totals().bytes, planned.backward) << "rank " << ranks.rank();
    });
  }
}

TEST(RingAttention, EveryGrainComputesItsShare) {
  torch_inside::install_gemm_counter();
  const Sizes size{4, 2, 3, 5, 7};
  // A product of a block; a grain has 2 C + 1 blocks, of 2 products forward and 5 backward.
  const int64_t product = 2 * size.n * size.G * size.h * size.h * size.K;
  on_ranks({1, 2, 3, 4}, [&](ProcessGroup& ranks) {
    const ContextGroup group = divided_by(ranks, size.grains);
    const int64_t blocks = group.place.local.size() * (2 * size.grains + 1);
    const at::Tensor q = leaf(own(group, values(1, size.queries())));
    const at::Tensor k = leaf(own(group, values(2, size.keys())));
    const int64_t start = torch_inside::gemm_flops_of_this_thread();
    const at::Tensor out = ring_attention(group, q, k, k, plain(size)).sum();
    const int64_t forward = torch_inside::gemm_flops_of_this_thread() - start;
    EXPECT_EQ(forward, 2 * blocks * product) << "rank " << ranks.rank();
    out.backward();
    EXPECT_EQ(torch_inside::gemm_flops_of_this_thread() - start - forward, 5 * blocks * product)
        << "rank " << ranks.rank();
  });
}

// 1024 tokens of 16 heads: the probabilities would be 64 MiB.
TEST(RingAttention, KeepsNoProbabilities) {
  const Sizes size{2, 8, 2, 256, 4};
  const at::Tensor q = leaf(values(1, size.queries())) * 1;
  const at::Tensor k = leaf(values(2, size.keys())) * 1, v = leaf(values(3, size.keys())) * 1;
  size_t bytes = 0;
  {
    const torch_inside::SavedTensorScope scope([&](const at::Tensor& x) {
      bytes += x.nbytes();
      return [copy = x.clone()] { return copy; };
    });
    const at::Tensor out = ring_attention(together(2), q, k, v, plain(size));
    EXPECT_TRUE(out.requires_grad());
  }
  const size_t of_rows = q.nbytes() / static_cast<size_t>(size.K);
  EXPECT_EQ(bytes, 2 * q.nbytes() + k.nbytes() + v.nbytes() + of_rows);
}

TEST(RingAttention, RefusesWhatDoesNotFit) {
  const Sizes size{2, 1, 1, 2, 3};
  const at::Tensor q = values(1, size.queries()), k = values(2, size.keys());
  const auto refusal = [&](const ContextGroup& group, const at::Tensor& a, const at::Tensor& b,
                           const RingOptions& options) {
    return test::message_of<UsageError>([&] { ring_attention(group, a, b, b, options); });
  };
  const RingOptions options = plain(size);
  EXPECT_NE(refusal(together(1), q, k, options).find("Give [1 grains"), std::string::npos);
  EXPECT_NE(refusal(together(2), q.narrow(3, 0, 3), k.narrow(2, 0, 3), options).find("even number"),
            std::string::npos);
  EXPECT_NE(refusal(together(2), q, k.narrow(3, 0, 2), options).find("[c, n, s, K] = [2, 1, 4, 3]"),
            std::string::npos);
  EXPECT_NE(refusal(together(2), q.to(at::kDouble), k, options).find("float32"), std::string::npos);
  const ContextGroup of_two = {nullptr, plan::context_place(2, 2, 0)};
  EXPECT_NE(refusal(of_two, q, k, options).find("plan::context_place"), std::string::npos);
  RingOptions wrong = options;
  wrong.keep = [](plan::TokenRange, plan::TokenRange) { return at::ones({2, 2}); };
  EXPECT_NE(refusal(together(2), q, k, wrong).find("[1, 1, 2, 2]"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::parallel
