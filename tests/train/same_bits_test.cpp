// The promise itself: one digest, one norm and one loss, however many ranks compute.

#include <gtest/gtest.h>

#include "tests/train/run_bits.h"
#include "tests/train/tiny_run.h"

namespace lockstep {
namespace {

using testing::Bits;
using testing::bits_of;
using testing::TinyRun;

using Setting = std::function<void(plan::TrainConfig&)>;

class SameBits : public ::testing::TestWithParam<std::pair<const char*, Setting>> {};

TEST_P(SameBits, OnOneToFourRanks) {
  TinyRun run;
  GetParam().second(run.config);
  const Bits alone = bits_of(run.run(1));
  for (const int ranks : {2, 3, 4}) EXPECT_EQ(bits_of(run.run(ranks)), alone) << ranks << " ranks";
}

INSTANTIATE_TEST_SUITE_P(
    Settings, SameBits,
    ::testing::
        Values(
            std::pair<const char*, Setting>{"Plain", [](plan::TrainConfig&) {}},
            std::pair<const char*, Setting>{"Dropout",
                                            [](plan::TrainConfig& c) { c.model.dropout = 0.1; }},
            std::pair<const char*, Setting>{"Accumulation",
                                            [](plan::TrainConfig& c) {
                                              c.data.global_batch = 16;
                                              c.numerics.grains = 4;
                                            }},
            std::pair<const char*, Setting>{"EightLeaves",
                                            [](plan::TrainConfig& c) { c.data.micro_batch = 1; }},
            std::pair<const char*, Setting>{
                "FiveLeaves",
                [](plan::TrainConfig& c) {
                  c.data.global_batch = 10;
                  c.numerics.grains = 5;
                }},
            std::pair<const char*, Setting>{"ClipInactive",
                                            [](plan::TrainConfig& c) { c.optim.grad_clip = 0; }},
            std::pair<const char*, Setting>{
                "Untied", [](plan::TrainConfig& c) { c.model.tied = false; }},
            std::
                pair<const char*, Setting>{
                    "Mlp",
                    [](plan::TrainConfig& c) {
                      c.model.family = "mlp";
                      c.model.tied = false;
                    }}),
    [](const auto& info) { return info.param.first; });

TEST(SameBitsAcross, BucketsAndOverlap) {
  TinyRun run;
  const Bits expected = bits_of(run.run(1));
  run.config.comm.bucket_mb = 0.001;
  run.config.comm.first_bucket_mb = 0.001;
  EXPECT_EQ(bits_of(run.run(3)), expected) << "small buckets";
  run.config.comm.overlap = false;
  EXPECT_EQ(bits_of(run.run(3)), expected) << "no overlap";
}

/// Controls: what is part of the identity does change the bits, so the tests above can fail.
TEST(SameBitsAcross, SeedLeavesAndDropoutAreOtherRuns) {
  TinyRun run;
  const Bits plain = bits_of(run.run(1));
  run.config.run.seed = 7;
  EXPECT_NE(bits_of(run.run(1)).digest, plain.digest);
  run.config.run.seed = 1337;
  run.config.numerics.grains = 2;
  EXPECT_NE(bits_of(run.run(1)).digest, plain.digest);
  run.config.numerics.grains = 0;
  run.config.model.dropout = 0.1;
  EXPECT_NE(bits_of(run.run(1)).digest, plain.digest);
}

}  // namespace
}  // namespace lockstep
