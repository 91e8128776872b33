#include "lockstep/state/param_store.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::state {
namespace {

/// Two layers with a tied head: "first" (5 x 3), "shift" (3), "head" (5 x 3, a use of "first").
struct TiedNet : torch::nn::Module {
  TiedNet() {
    first = register_parameter("first", torch::empty({5, 3}));
    shift = register_parameter("shift", torch::empty({3}));
    head = register_parameter("head", torch::empty({5, 3}));
  }
  torch::Tensor first, shift, head;
};

const std::vector<plan::Tie> kTie = {{.use = "head", .of = "first"}};

plan::Init init_of(const std::string& path) {
  if (path == "shift") return {.kind = plan::Init::Kind::ones};
  return {.kind = plan::Init::Kind::normal, .std = 0.5};
}

TEST(ParamStore, HoldsOnceWhatIsTied) {
  TiedNet net;
  ParamStore store(net, kTie, init_of, {.seed = 3});
  ASSERT_EQ(store.table().params.size(), 2u);
  EXPECT_EQ(store.table().numel(), 18);
  EXPECT_EQ(net.head.data_ptr(), net.first.data_ptr());
  EXPECT_NE(net.head.unsafeGetTensorImpl(), net.first.unsafeGetTensorImpl());
  // 15 and 3 elements in slots of multiples of 16.
  EXPECT_EQ(store.buckets().numel, 32);
  EXPECT_EQ(store.bytes(), 4 * 32);
}

TEST(ParamStore, WhatTheOptimizerWritesIsWhatTheModuleReads) {
  TiedNet net;
  ParamStore store(net, kTie, init_of, {.seed = 3});
  const int first = store.table().find("first");
  store.master(first)[7] = 42.0f;
  EXPECT_EQ(net.head[2][1].item<float>(), 42.0f);
  EXPECT_TRUE(torch::equal(net.shift, torch::ones({3})));
}

TEST(ParamStore, StartValuesDependOnSeedAndNameOnly) {
  TiedNet small_buckets, one_bucket, other_seed;
  ParamStore a(small_buckets, kTie, init_of,
               {.seed = 3, .first_bucket_bytes = 4, .bucket_bytes = 4});
  ParamStore b(one_bucket, kTie, init_of, {.seed = 3});
  ParamStore c(other_seed, kTie, init_of, {.seed = 4});
  EXPECT_GT(a.buckets().buckets.size(), b.buckets().buckets.size());
  EXPECT_TRUE(torch::equal(small_buckets.first, one_bucket.first));
  EXPECT_EQ(a.digest(), b.digest());
  EXPECT_FALSE(a.digest() == c.digest());
}

TEST(ParamStore, DigestSeesOneBit) {
  TiedNet net;
  ParamStore store(net, kTie, init_of, {.seed = 3});
  const plan::Digest before = store.digest();
  store.master(0)[0] = std::nextafter(store.master(0)[0], 1.0f);
  EXPECT_FALSE(store.digest() == before);
}

TEST(ParamStore, KeepsWhatIsNotTrained) {
  TiedNet net;
  net.shift.set_requires_grad(false);
  ParamStore store(net, kTie, init_of, {.seed = 3});
  const int shift = store.table().find("shift");
  EXPECT_EQ(store.buckets().slots[static_cast<size_t>(shift)].bucket, -1);
  EXPECT_EQ(store.master(shift)[2], 1.0f);
}

TEST(ParamStore, RefusesSharingThatWasNotDeclared) {
  struct Shared : torch::nn::Module {
    Shared() {
      a = register_parameter("a", torch::empty({2}));
      register_parameter("b", a);
    }
    torch::Tensor a;
  } net;
  try {
    ParamStore store(net, {}, init_of, {});
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("\"a\" and \"b\""), std::string::npos) << message;
  }
}

TEST(ParamStore, RefusesATieBetweenShapes) {
  TiedNet net;
  EXPECT_THROW(ParamStore(net, {{.use = "head", .of = "shift"}}, init_of, {}), UsageError);
}

}  // namespace
}  // namespace lockstep::state
