// Asynchronous calls of every kind, many under way at once. More of them:
// long/mixed_async_test.cpp.
#include "tests/comm/mixed_async.h"

#include "tests/net/ranks.h"

namespace lockstep::test {
namespace {

using net::testing::Engine;

class MixedAsyncOn : public ::testing::TestWithParam<Engine> {};
INSTANTIATE_TEST_SUITE_P(Engines, MixedAsyncOn, ::testing::Values(Engine::threads, Engine::shm),
                         [](const auto& info) { return net::testing::name_of(info.param); });

TEST_P(MixedAsyncOn, CallsAreAllRight) {
  net::testing::run_on(GetParam(), 3, [](const std::shared_ptr<net::Group>& world) {
    MixedAsync(world, 21).run(3000);
  });
}

}  // namespace
}  // namespace lockstep::test
