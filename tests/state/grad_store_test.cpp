#include "lockstep/state/grad_store.h"

#include <gtest/gtest.h>

#include <cstring>
#include <mutex>

#include "lockstep/base/counter_random.h"
#include "lockstep/net/world.h"

namespace lockstep::state {
namespace {

constexpr int64_t kWidth = 7;  // no multiple of anything
constexpr int kMicro = 2;      // micro-batches a leaf

/// y = sum over outputs of head(tanh(x * first + shift)), head tied to first; "idle" has no part.
struct Net : torch::nn::Module {
  Net() {
    first = register_parameter("first", torch::empty({kWidth, kWidth}));
    shift = register_parameter("shift", torch::empty({kWidth}));
    idle = register_parameter("idle", torch::empty({3}));
    head = register_parameter("head", torch::empty({kWidth, kWidth}));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return torch::mm(torch::tanh(torch::mm(x, first) + shift), head.t()).sum();
  }
  torch::Tensor first, shift, idle, head;
};

plan::Init init_of(const std::string&) { return {.kind = plan::Init::Kind::normal, .std = 0.7}; }

torch::Tensor input_of(int leaf, int micro) {
  torch::Tensor x = torch::empty({3, kWidth});
  const base::RandomKey key =
      base::RandomKey(11).with(static_cast<uint64_t>(leaf)).with(static_cast<uint64_t>(micro));
  for (int64_t i = 0; i < x.numel(); ++i) {
    x.data_ptr<float>()[i] = static_cast<float>(key.normal(static_cast<uint64_t>(i)));
  }
  return x;
}

/// The reduced gradients of all parameters, computed by `group`, as bytes in name order.
std::string reduced_gradients(const std::shared_ptr<net::Group>& world, int grains,
                              int64_t bucket_bytes) {
  ProcessGroup group(world);
  Net net;
  ParamStore params(net, {{.use = "head", .of = "first"}}, init_of,
                    {.seed = 5, .first_bucket_bytes = bucket_bytes, .bucket_bytes = bucket_bytes});
  const auto leaves = plan::plan_leaves(grains, group.size(), plan::LeafAssignment::contiguous);
  GradStore grads(params, group, leaves, kMicro);
  const int first = params.table().find("first");
  for (const int leaf : leaves.leaves_of(group.rank())) {
    for (int micro = 0; micro < kMicro; ++micro) {
      grads.begin_backward(leaf, micro);
      net.forward(input_of(leaf, micro)).backward();
      grads.end_backward();
    }
    grads.fold_use(first, leaf);
    for (size_t b = 0; b < params.buckets().buckets.size(); ++b) {
      grads.fold(static_cast<int>(b), leaf);
    }
  }
  std::vector<Work> works;
  for (size_t b = 0; b < params.buckets().buckets.size(); ++b) {
    works.push_back(grads.reduce(static_cast<int>(b)));
  }
  for (Work& work : works) work.wait();
  std::string bytes;
  for (const int p : params.table().by_name) {
    bytes.append(reinterpret_cast<const char*>(grads.gradient(p)),
                 static_cast<size_t>(params.table().params[static_cast<size_t>(p)].numel) * 4);
  }
  group.barrier();  // peers may still read this rank's terms
  return bytes;
}

std::vector<std::string> on_ranks(int ranks, int grains, int64_t bucket_bytes = 1 * MiB) {
  std::vector<std::string> results(static_cast<size_t>(ranks));
  net::run_on_threads(ranks, [&](const std::shared_ptr<net::Group>& world) {
    results[static_cast<size_t>(world->rank())] = reduced_gradients(world, grains, bucket_bytes);
  });
  return results;
}

class GradStoreOnRanks : public ::testing::TestWithParam<int> {};

TEST_P(GradStoreOnRanks, SameBitsAsOneRank) {
  for (const int grains : {4, 5, 6, 7}) {
    const std::string alone = on_ranks(1, grains)[0];
    for (const std::string& shared : on_ranks(GetParam(), grains)) {
      EXPECT_EQ(shared, alone) << grains << " leaves";
    }
  }
}

TEST_P(GradStoreOnRanks, BucketsDoNotMatter) {
  EXPECT_EQ(on_ranks(GetParam(), 5, /*bucket_bytes=*/16)[0], on_ranks(GetParam(), 5)[0]);
}

INSTANTIATE_TEST_SUITE_P(Ranks, GradStoreOnRanks, ::testing::Values(1, 2, 3, 4));

/// The reference of the tests above, made without stores: autograd alone, leaf by leaf, and the
/// tree written out.
TEST(GradStore, IsWhatAutogradAndTheTreeGive) {
  constexpr int kGrains = 5;
  Net net;
  ParamStore params(net, {{.use = "head", .of = "first"}}, init_of, {.seed = 5});
  const auto leaf_gradient = [&](int leaf) {
    for (torch::Tensor& p : net.parameters()) p.mutable_grad() = torch::Tensor();
    for (int micro = 0; micro < kMicro; ++micro) net.forward(input_of(leaf, micro)).backward();
    return std::vector<torch::Tensor>{net.head.grad() + net.first.grad(), net.shift.grad()};
  };
  const std::function<std::vector<torch::Tensor>(int, int)> sum = [&](int lo, int hi) {
    if (hi - lo == 1) return leaf_gradient(lo);
    const int mid = plan::split(lo, hi);
    auto left = sum(lo, mid);
    const auto right = sum(mid, hi);
    for (size_t i = 0; i < left.size(); ++i) left[i] = left[i] + right[i];
    return left;
  };
  const auto expected = sum(0, kGrains);
  const std::string bytes = on_ranks(3, kGrains)[1];
  // by name: first, idle, shift
  const char* at = bytes.data();
  EXPECT_EQ(std::memcmp(at, expected[0].data_ptr(), kWidth * kWidth * 4), 0);
  at += kWidth * kWidth * 4;
  const std::vector<float> zeros(3);
  EXPECT_EQ(std::memcmp(at, zeros.data(), 12), 0) << "a parameter without gradient counts as zero";
  at += 12;
  EXPECT_EQ(std::memcmp(at, expected[1].data_ptr(), kWidth * 4), 0);
}

/// The control: adding in leaf order gives other bits, so the tests above can fail.
TEST(GradStore, LeafOrderWouldDiffer) {
  constexpr int kGrains = 7;
  Net net;
  ParamStore params(net, {{.use = "head", .of = "first"}}, init_of, {.seed = 5});
  for (int leaf = 0; leaf < kGrains; ++leaf) {
    for (int micro = 0; micro < kMicro; ++micro) net.forward(input_of(leaf, micro)).backward();
  }
  const torch::Tensor in_order = net.head.grad() + net.first.grad();
  const std::string bytes = on_ranks(1, kGrains)[0];
  EXPECT_NE(std::memcmp(bytes.data(), in_order.data_ptr(), kWidth * kWidth * 4), 0);
}

TEST(GradStore, TellsEachBucketOncePerLeafAndInReverseOrderOfUse) {
  net::run_on_threads(1, [](const std::shared_ptr<net::Group>& world) {
    ProcessGroup group(world);
    Net net;
    ParamStore params(net, {{.use = "head", .of = "first"}}, init_of,
                      {.seed = 5, .first_bucket_bytes = 16, .bucket_bytes = 16});
    const auto leaves = plan::plan_leaves(2, 1, plan::LeafAssignment::contiguous);
    GradStore grads(params, group, leaves, kMicro);
    std::vector<int> told;
    grads.on_bucket_ready([&](int bucket) { told.push_back(bucket); });
    grads.begin_backward(0, 0);
    net.forward(input_of(0, 0)).backward();
    grads.end_backward();
    EXPECT_TRUE(told.empty()) << "the leaf has another micro-batch";
    grads.begin_backward(0, 1);
    net.forward(input_of(0, 1)).backward();
    const std::vector<int> during = told;
    grads.end_backward();
    const auto bucket_of = [&](const char* name) {
      return params.buckets().slots[static_cast<size_t>(params.table().find(name))].bucket;
    };
    EXPECT_EQ(during, (std::vector<int>{bucket_of("shift"), bucket_of("first")}));
    EXPECT_EQ(told, (std::vector<int>{bucket_of("shift"), bucket_of("first"), bucket_of("idle")}));
  });
}

TEST(GradStore, HoldsAsPlanned) {
  net::run_on_threads(3, [](const std::shared_ptr<net::Group>& world) {
    ProcessGroup group(world);
    Net net;
    ParamStore params(net, {{.use = "head", .of = "first"}}, init_of, {.seed = 5});
    const auto leaves = plan::plan_leaves(8, 3, plan::LeafAssignment::contiguous);
    GradStore grads(params, group, leaves, 1);
    // Runs [0,3) [3,6) [6,8): terms (0,2) 2 | 3 (4,6) | (6,8). A leaf that is merged at once needs
    // a level, but the first rank has its second term's for it.
    const int64_t flat = params.buckets().numel * 4;
    const std::vector<int64_t> terms = {2, 2, 1};
    EXPECT_EQ(grads.heap_bytes(), terms[static_cast<size_t>(group.rank())] * flat);
    const std::vector<int64_t> scratch = {0, 1, 1};
    EXPECT_EQ(grads.scratch_bytes(),
              scratch[static_cast<size_t>(group.rank())] * flat + kWidth * kWidth * 4);
    group.barrier();
  });
}

/// A parameter may have a gradient in one step and none in the next: then it is zero, not stale.
TEST(GradStore, AParameterWithoutAGradientIsZeroNotStale) {
  net::run_on_threads(1, [](const std::shared_ptr<net::Group>& world) {
    ProcessGroup group(world);
    Net net;
    ParamStore params(net, {{.use = "head", .of = "first"}}, init_of, {.seed = 5});
    GradStore grads(params, group, plan::plan_leaves(2, 1, plan::LeafAssignment::contiguous), 1);
    const int idle = params.table().find("idle");
    const auto step = [&](const std::vector<bool>& used_in_leaf) {
      for (int leaf = 0; leaf < 2; ++leaf) {
        grads.begin_backward(leaf, 0);
        torch::Tensor loss = net.forward(input_of(leaf, 0));
        if (used_in_leaf[static_cast<size_t>(leaf)]) loss = loss + net.idle.sum();
        loss.backward();
        grads.end_backward();
        for (size_t b = 0; b < params.buckets().buckets.size(); ++b) {
          grads.fold(static_cast<int>(b), leaf);
        }
      }
      return grads.gradient(idle)[2];
    };
    EXPECT_EQ(step({true, true}), 2.0f);
    EXPECT_EQ(step({false, true}), 1.0f);
    EXPECT_EQ(step({true, false}), 1.0f);
    EXPECT_EQ(step({false, false}), 0.0f);
  });
}

TEST(GradStore, GradientsAreViewsOfTheHeap) {
  net::run_on_threads(1, [](const std::shared_ptr<net::Group>& world) {
    ProcessGroup group(world);
    Net net;
    ParamStore params(net, {{.use = "head", .of = "first"}}, init_of, {.seed = 5});
    GradStore grads(params, group, plan::plan_leaves(1, 1, plan::LeafAssignment::contiguous), 2);
    const void* slot = grads.gradient(params.table().find("shift"));
    for (int micro = 0; micro < 2; ++micro) {
      grads.begin_backward(0, micro);
      net.forward(input_of(0, micro)).backward();
      grads.end_backward();
      EXPECT_EQ(net.shift.grad().data_ptr(), slot);
    }
  });
}

}  // namespace
}  // namespace lockstep::state
