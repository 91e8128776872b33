// A hundred thousand asynchronous calls of every kind between four processes, in memory that does
// not grow.
#include "tests/comm/mixed_async.h"

#include "lockstep/base/units.h"
#include "tests/net/ranks.h"

namespace lockstep::test {
namespace {

TEST(LongMixedAsync, AHundredThousandBetweenFourProcesses) {
  net::testing::run_on(net::testing::Engine::shm, 4, [](const std::shared_ptr<net::Group>& world) {
    EXPECT_LT(MixedAsync(world, 22).growth(100'000), 16 * MiB);
  });
}

}  // namespace
}  // namespace lockstep::test
