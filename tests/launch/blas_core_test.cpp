#include "lockstep/launch/blas_core.h"

#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

TEST(BlasCore, OnlyAnOldChoiceIsBettered) {
  EXPECT_EQ(better_blas_core("Prescott", true, true), "SkylakeX");
  EXPECT_EQ(better_blas_core("Prescott", true, false), "Haswell");
  EXPECT_EQ(better_blas_core("Prescott", false, false), "") << "the processor has no more";
  for (const char* good : {"Haswell", "Zen", "SkylakeX", "Cooperlake", "Sapphirerapids", ""}) {
    EXPECT_EQ(better_blas_core(good, true, true), "") << good;
  }
}

}  // namespace
}  // namespace lockstep::launch
