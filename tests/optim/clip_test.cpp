#include "lockstep/optim/clip.h"

#include <gtest/gtest.h>

namespace lockstep::optim {
namespace {

TEST(Clip, ScalesToTheLimitOnlyAboveIt) {
  EXPECT_EQ(clip_scale(5, 1), 0.2);
  EXPECT_EQ(clip_scale(1, 1), 1.0);
  EXPECT_EQ(clip_scale(0.5, 1), 1.0);
  EXPECT_EQ(clip_scale(0, 1), 1.0);
}

TEST(Clip, ALimitOfZeroIsOff) { EXPECT_EQ(clip_scale(1e9, 0), 1.0); }

}  // namespace
}  // namespace lockstep::optim
