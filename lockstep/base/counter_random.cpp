#include "lockstep/base/counter_random.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>

namespace lockstep::base {
namespace {

// IEEE 754 rounds + - * / and sqrt exactly, and the project is compiled without contraction: what
// is made of them alone has equal bits on every machine. std::log has not.

template <size_t N>
double polynomial(const std::array<double, N>& coefficients, double x) {
  double value = coefficients[N - 1];
  for (size_t i = N - 1; i-- > 0;) value = value * x + coefficients[i];
  return value;
}

/// Natural logarithm of a positive normal number.
///
/// x = m 2^e with m in [sqrt(1/2), sqrt(2)), and log m = 2 artanh(s) with s = (m - 1) / (m + 1),
/// |s| < 0.1716: ten terms of its series leave less than 1e-17.
double logarithm(double x) {
  constexpr double kLn2 = 0.69314718055994530942;
  constexpr double kRootTwo = 1.41421356237309504880;
  constexpr uint64_t kFraction = (uint64_t{1} << 52) - 1;
  const auto bits = std::bit_cast<uint64_t>(x);
  auto exponent = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & kFraction) | std::bit_cast<uint64_t>(1.0));
  if (m >= kRootTwo) {
    m *= 0.5;
    ++exponent;
  }
  const double s = (m - 1) / (m + 1);
  constexpr std::array<double, 10> kSeries = {1.0,      1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9,
                                              1.0 / 11, 1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19};
  return exponent * kLn2 + 2 * s * polynomial(kSeries, s * s);
}

// Wichura 1988, "Algorithm AS 241: the percentage points of the normal distribution", Applied
// Statistics 37(3): rational approximations, relative error about 1e-16, in three regions.

constexpr double kCentral = 0.425;
constexpr std::array<double, 8> kCentralAbove = {
    3.3871328727963666080e0,  1.3314166789178437745e+2, 1.9715909503065514427e+3,
    1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4,
    3.3430575583588128105e+4, 2.5090809287301226727e+3};
constexpr std::array<double, 8> kCentralBelow = {1.0,
                                                 4.2313330701600911252e+1,
                                                 6.8718700749205790830e+2,
                                                 5.3941960214247511077e+3,
                                                 2.1213794301586595867e+4,
                                                 3.9307895800092710610e+4,
                                                 2.8729085735721942674e+4,
                                                 5.2264952788528545610e+3};

constexpr double kMiddle = 5.0;
constexpr std::array<double, 8> kMiddleAbove = {
    1.42343711074968357734e0,  4.63033784615654529590e0, 5.76949722146069140550e0,
    3.64784832476320460504e0,  1.27045825245236838258e0, 2.41780725177450611770e-1,
    2.27238449892691845833e-2, 7.74545014278341407640e-4};
constexpr std::array<double, 8> kMiddleBelow = {1.0,
                                                2.05319162663775882187e0,
                                                1.67638483018380384940e0,
                                                6.89767334985100004550e-1,
                                                1.48103976427480074590e-1,
                                                1.51986665636164571966e-2,
                                                5.47593808499534494600e-4,
                                                1.05075007164441684324e-9};

constexpr std::array<double, 8> kFarAbove = {6.65790464350110377720e0,  5.46378491116411436990e0,
                                             1.78482653991729133580e0,  2.96560571828504891230e-1,
                                             2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                             2.71155556874348757815e-5, 2.01033439929228813265e-7};
constexpr std::array<double, 8> kFarBelow = {1.0,
                                             5.99832206555887937690e-1,
                                             1.36929880922735805310e-1,
                                             1.48753612908506148525e-2,
                                             7.86869131145613259100e-4,
                                             1.84631831751005468180e-5,
                                             1.42151175831644588870e-7,
                                             2.04426310338993978564e-15};

/// The x below which a standard normal variable lies with probability p, 0 < p < 1.
double normal_quantile(double p) {
  const double q = p - 0.5;
  if (-kCentral <= q && q <= kCentral) {
    const double r = kCentral * kCentral - q * q;
    return q * polynomial(kCentralAbove, r) / polynomial(kCentralBelow, r);
  }
  const double r = std::sqrt(-logarithm(q < 0 ? p : 1 - p));
  const double x = r <= kMiddle
                       ? polynomial(kMiddleAbove, r - 1.6) / polynomial(kMiddleBelow, r - 1.6)
                       : polynomial(kFarAbove, r - kMiddle) / polynomial(kFarBelow, r - kMiddle);
  return q < 0 ? -x : x;
}

}  // namespace

double RandomKey::normal(uint64_t counter) const { return normal_quantile(uniform(counter)); }

}  // namespace lockstep::base
