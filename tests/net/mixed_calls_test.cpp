// Many small calls of every kind, one after the other. A million of them:
// long/mixed_calls_test.cpp.
#include "tests/net/mixed_calls.h"

#include "lockstep/base/units.h"
#include "tests/net/ranks.h"

namespace lockstep::net::testing {
namespace {

struct MixedCase {
  Engine engine;
  int ranks;
};

class MixedCallsOn : public ::testing::TestWithParam<MixedCase> {};
INSTANTIATE_TEST_SUITE_P(Engines, MixedCallsOn,
                         ::testing::Values(MixedCase{Engine::shm, 4}, MixedCase{Engine::threads, 3},
                                           MixedCase{Engine::shm, 8}),
                         [](const auto& info) {
                           return name_of(info.param.engine) + std::to_string(info.param.ranks);
                         });

TEST_P(MixedCallsOn, AreAllRightInFlatMemory) {
  run_on(GetParam().engine, GetParam().ranks, [](const std::shared_ptr<Group>& world) {
    MixedCalls calls(world, 11);
    EXPECT_LT(calls.growth(12'000), 2 * MiB);
  });
}

}  // namespace
}  // namespace lockstep::net::testing
