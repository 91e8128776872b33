#include "lockstep/base/units.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

namespace lockstep::base {
namespace {

TEST(Units, CountsWithCommas) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1000), "1,000");
  EXPECT_EQ(with_commas(842496), "842,496");
  EXPECT_EQ(with_commas(1234567890), "1,234,567,890");
  EXPECT_EQ(with_commas(-999), "-999");
  EXPECT_EQ(with_commas(-100000), "-100,000");
}

TEST(Units, BytesInTheLargestUnitThatFits) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1024), "1.0 KiB");
  EXPECT_EQ(bytes_text(1572864), "1.5 MiB");
  EXPECT_EQ(bytes_text(3 * GiB), "3.0 GiB");
  EXPECT_EQ(bytes_text(5000 * 1024 * GiB), "5000.0 TiB");
}

TEST(Units, Durations) {
  EXPECT_EQ(duration_text(0), "0:00");
  EXPECT_EQ(duration_text(59.4), "0:59");
  EXPECT_EQ(duration_text(59.6), "1:00");
  EXPECT_EQ(duration_text(75.3), "1:15");
  EXPECT_EQ(duration_text(3599.6), "1:00:00");
  EXPECT_EQ(duration_text(3725), "1:02:05");
}

TEST(Units, ExactReadsBackInBits) {
  for (const double value : {0.0, -0.0, 0.1, 1.0 / 3, 1e300, 5e-324, 6.02214076e23, -2.5,
                             std::nextafter(1.0, 2.0), std::numeric_limits<double>::max()}) {
    const double back = std::strtod(exact(value).c_str(), nullptr);
    EXPECT_EQ(back, value);
    EXPECT_EQ(std::signbit(back), std::signbit(value));
  }
  EXPECT_EQ(exact(1.0), "1");
  EXPECT_EQ(exact(0.1), "0.10000000000000001");
}

}  // namespace
}  // namespace lockstep::base
