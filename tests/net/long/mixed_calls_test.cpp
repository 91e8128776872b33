// A million small calls of every kind, each result checked, in memory that does not grow.
#include "tests/net/mixed_calls.h"

#include "lockstep/base/units.h"
#include "tests/net/ranks.h"

namespace lockstep::net::testing {
namespace {

void run_mixed(Engine engine, int ranks, int64_t count) {
  run_on(engine, ranks, [count](const std::shared_ptr<Group>& world) {
    MixedCalls calls(world, 12);
    EXPECT_LT(calls.growth(count), 2 * MiB);
  });
}

TEST(LongMixedCalls, AMillionBetweenFourProcesses) { run_mixed(Engine::shm, 4, 1'000'000); }
TEST(LongMixedCalls, AMillionBetweenFourThreads) { run_mixed(Engine::threads, 4, 1'000'000); }
TEST(LongMixedCalls, AHundredThousandBetweenEightProcesses) { run_mixed(Engine::shm, 8, 100'000); }
TEST(LongMixedCalls, AHundredThousandBetweenEightThreads) {
  run_mixed(Engine::threads, 8, 100'000);
}

}  // namespace
}  // namespace lockstep::net::testing
