#include "lockstep/cli/line_fit.h"

#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

TEST(LineFit, FindsTheLineThatThereIs) {
  const std::vector<double> bytes = {8, 64, 1024, 65536, 1 << 20};
  std::vector<double> seconds;
  for (const double x : bytes) seconds.push_back(3e-6 + x / 2e9);
  const auto fit = fit_line(bytes, seconds);
  ASSERT_TRUE(fit);
  EXPECT_NEAR(fit->alpha_s, 3e-6, 1e-14);
  EXPECT_NEAR(fit->seconds_per_byte, 0.5e-9, 1e-18);
  for (const double residual : fit->residuals) EXPECT_NEAR(residual, 0, 1e-9);
}

/// Ten per cent more at the largest size must not bend the smallest ones away.
TEST(LineFit, ErrorsCountRelatively) {
  const std::vector<double> bytes = {8, 64, 512, 4096, 1 << 26};
  std::vector<double> seconds;
  for (const double x : bytes) seconds.push_back(1e-6 + x / 1e9);
  seconds.back() *= 1.1;
  const auto fit = fit_line(bytes, seconds);
  ASSERT_TRUE(fit);
  EXPECT_NEAR(fit->alpha_s, 1e-6, 0.02e-6);
  EXPECT_NEAR(fit->residuals.back(), 0, 0.1);
}

TEST(LineFit, IsNoneWhereThereIsNoLine) {
  EXPECT_FALSE(fit_line({8}, {1e-6}));
  EXPECT_FALSE(fit_line({8, 8}, {1e-6, 2e-6}));
  EXPECT_FALSE(fit_line({8, 64}, {2e-6, 1e-6}));
  EXPECT_FALSE(fit_line({8, 64}, {0, 1e-6}));
  EXPECT_FALSE(fit_line({}, {}));
}

}  // namespace
}  // namespace lockstep::cli
