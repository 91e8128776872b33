#include "lockstep/base/number_text.h"

#include <gtest/gtest.h>

#include <clocale>
#include <cmath>
#include <limits>

#include "lockstep/base/units.h"

namespace lockstep::base {
namespace {

TEST(NumberText, FixedAndScientific) {
  EXPECT_EQ(fixed_text(3.14159, 2), "3.14");
  EXPECT_EQ(fixed_text(-0.5, 0), "-0");
  EXPECT_EQ(fixed_text(1234.5, 1), "1234.5");
  EXPECT_EQ(scientific_text(0.000946, 2), "9.46e-04");
  EXPECT_EQ(fixed_text(std::nan(""), 3), "nan");
  EXPECT_EQ(fixed_text(std::numeric_limits<double>::infinity(), 3), "inf");
  EXPECT_EQ(fixed_text(std::numeric_limits<double>::max(), 2).size(), 309u + 3u);
}

/// BAD-10: a locale with a decimal comma, if the machine has one.
TEST(NumberText, BAD_10_ADecimalCommaChangesNothing) {
  bool found = false;
  for (const char* name : {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "nl_NL.UTF-8"}) {
    if (std::setlocale(LC_NUMERIC, name) == nullptr) continue;
    found = true;
    EXPECT_EQ(fixed_text(1.5, 1), "1.5");
    EXPECT_EQ(bytes_text(1572864), "1.5 MiB");
    EXPECT_EQ(exact(0.5), "0.5");
  }
  std::setlocale(LC_NUMERIC, "C");
  if (!found) GTEST_SKIP() << "no locale with a decimal comma is installed";
}

}  // namespace
}  // namespace lockstep::base
