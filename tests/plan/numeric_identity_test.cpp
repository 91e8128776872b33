#include "lockstep/plan/numeric_identity.h"

#include "tests/plan/property.h"

namespace lockstep::plan {
namespace {

TEST(NumericIdentity, IsOneLine) {
  NumericIdentity identity;
  identity.batch = plan_batch(16, 4, 0);
  identity.kernel_set = "aten-1.13";
  identity.instruction_set = "avx2";
  EXPECT_EQ(identity.text(), "B16 b4 G4 M1 T1 fp32 aten-1.13 avx2 1t");
}

TEST(NumericIdentity, EveryPartCounts) {
  NumericIdentity identity;
  identity.batch = plan_batch(32, 2, 4);
  const std::vector<NumericIdentity> others = [&] {
    std::vector<NumericIdentity> changed(9, identity);
    changed[0].batch.global_batch = 64;
    changed[1].batch.micro_batch = 4;
    changed[2].batch.grains = 8;
    changed[3].batch.micro_batches_per_grain = 2;
    changed[4].tensor_grains = 2;
    changed[5].compute = "bf16";
    changed[6].kernel_set = "other";
    changed[7].instruction_set = "avx512";
    changed[8].threads_per_rank = 2;
    return changed;
  }();
  for (const NumericIdentity& other : others) {
    EXPECT_FALSE(other == identity);
    EXPECT_NE(other.text(), identity.text());
  }
}

}  // namespace
}  // namespace lockstep::plan
