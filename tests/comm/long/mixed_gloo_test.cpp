// Ten thousand mixed calls over gloo, in groups that are connected and dropped on the way.
#include "lockstep/base/error.h"
#include "lockstep/base/units.h"
#include "lockstep/comm/engines/c10d.h"
#include "tests/net/mixed_calls.h"
#include "tests/net/ranks.h"

namespace lockstep::net::testing {
namespace {

TEST(LongMixedGloo, TenThousandBetweenFourProcesses) {
  EndpointOptions options = patient();
  try {
    options.engine = make_gloo_engine(options.timeout);
  } catch (const EnvironmentError& error) {
    GTEST_SKIP() << error.what();
  }
  const auto body = [](const std::shared_ptr<Group>& world) {
    EXPECT_LT(MixedCalls(world, 13).growth(10'000), 8 * MiB);
  };
  run_on(Engine::shm, 4, body, options);
}

}  // namespace
}  // namespace lockstep::net::testing
