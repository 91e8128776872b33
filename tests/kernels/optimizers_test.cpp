// The kernels of SGD, LARS and LAMB against plain code of one operation a line, which is compiled
// for no particular instruction set: equal bits at each length and offset.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "lockstep/base/counter_random.h"
#include "lockstep/kernels/lamb.h"
#include "lockstep/kernels/momentum.h"

namespace lockstep::kernels {
namespace {

constexpr int64_t kLongest = 70;
constexpr int64_t kOffsets[] = {0, 1, 3, 7, 13};

std::vector<float> numbers(uint64_t seed, int64_t count) {
  const base::RandomKey key(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const double size = std::ldexp(key.uniform(2 * i), static_cast<int>(key.below(2 * i, 40)) - 30);
    values[i] = static_cast<float>((key.bits(2 * i + 1) & 1) != 0 ? size : -size);
    if (i % 17 == 5) values[i] = i % 2 == 0 ? 0.0f : -0.0f;
  }
  return values;
}

void expect_same_bits(const std::vector<float>& got, const std::vector<float>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(expected[i]))
        << "element " << i << ": " << got[i] << " instead of " << expected[i];
  }
}

/// Calls body(offset, count, size): of `size` elements it works on `count` from `offset` on.
template <class Body>
void for_each_cut(const Body& body) {
  for (const int64_t offset : kOffsets) {
    for (int64_t count = 0; count <= kLongest; ++count) body(offset, count, offset + kLongest + 1);
  }
}

float gradient_of(float gradient, float master, const MomentumScalars& s) {
  const float scaled = gradient * s.grad_scale;
  const float decayed = s.decay * master;
  return scaled + decayed;
}

TEST(Sgd, SameBitsAtEachLengthAndOffset) {
  const MomentumScalars s{.momentum = 0.9f, .step_size = 3e-3f, .decay = 0.1f, .grad_scale = 0.7f};
  for_each_cut([&](int64_t offset, int64_t count, int64_t size) {
    std::vector<float> master = numbers(1, size), moment = numbers(2, size);
    const std::vector<float> gradient = numbers(3, size);
    std::vector<float> expected = master, expected_moment = moment;
    for (int64_t i = offset; i < offset + count; ++i) {
      const float g = gradient_of(gradient[i], expected[i], s);
      const float kept = s.momentum * expected_moment[i];
      expected_moment[i] = kept + g;
      const float change = s.step_size * expected_moment[i];
      expected[i] = expected[i] - change;
    }
    sgd(master.data() + offset, moment.data() + offset, gradient.data() + offset, count, s);
    expect_same_bits(master, expected);
    expect_same_bits(moment, expected_moment);
  });
}

TEST(Lars, SameBitsAtEachLengthAndOffset) {
  const MomentumScalars s{.momentum = 0.9f, .step_size = 3e-3f, .decay = 0.1f, .grad_scale = 0.7f};
  for_each_cut([&](int64_t offset, int64_t count, int64_t size) {
    std::vector<float> master = numbers(4, size), moment = numbers(5, size);
    const std::vector<float> gradient = numbers(6, size);
    std::vector<float> expected = master, expected_moment = moment;
    for (int64_t i = offset; i < offset + count; ++i) {
      const float g = gradient_of(gradient[i], expected[i], s);
      const float kept = s.momentum * expected_moment[i];
      const float step = s.step_size * g;
      expected_moment[i] = kept + step;
      expected[i] = expected[i] - expected_moment[i];
    }
    lars(master.data() + offset, moment.data() + offset, gradient.data() + offset, count, s);
    expect_same_bits(master, expected);
    expect_same_bits(moment, expected_moment);
  });
}

TEST(Scale, SameBitsAtEachLengthAndOffset) {
  for_each_cut([&](int64_t offset, int64_t count, int64_t size) {
    std::vector<float> into(static_cast<size_t>(size), 5.0f);
    const std::vector<float> gradient = numbers(7, size);
    std::vector<float> expected = into;
    for (int64_t i = offset; i < offset + count; ++i) expected[i] = gradient[i] * 0.3f;
    scale(into.data() + offset, gradient.data() + offset, count, 0.3f);
    expect_same_bits(into, expected);
  });
}

/// Of one element, as lamb.h says it.
struct LambElement {
  float master, first, second, direction;

  void moments(float gradient, const LambScalars& s) {
    const float g = gradient * s.grad_scale;
    const float kept_first = s.beta1 * first;
    const float new_first = s.one_minus_beta1 * g;
    first = kept_first + new_first;
    const float kept_second = s.beta2 * second;
    const float scaled = s.one_minus_beta2 * g;
    const float new_second = scaled * g;
    second = kept_second + new_second;
    const float corrected = first * s.first_scale;
    const float root = std::sqrt(second);
    const float scaled_root = root * s.root_scale;
    const float divisor = scaled_root + s.eps;
    const float step = corrected / divisor;
    const float decayed = s.decay * master;
    direction = step + decayed;
  }
};

/// The direction that the first pass measures is, bit for bit, the one that the second applies.
TEST(Lamb, SameBitsAtEachLengthAndOffsetInBothPasses) {
  constexpr float kStep = 2e-3f;
  for_each_cut([&](int64_t offset, int64_t count, int64_t size) {
    const LambScalars s = lamb_scalars(3, 0.9, 0.95, 1e-8, 0.1, true, 0.7);
    std::vector<float> master = numbers(8, size), first = numbers(9, size);
    std::vector<float> second = numbers(10, size), direction(static_cast<size_t>(size), 5.0f);
    for (float& value : second) value = std::abs(value);
    const std::vector<float> gradient = numbers(11, size);
    std::vector<float> expected = master, expected_first = first, expected_second = second;
    std::vector<float> expected_direction = direction;
    for (int64_t i = offset; i < offset + count; ++i) {
      LambElement element{master[i], first[i], second[i], 0};
      element.moments(gradient[i], s);
      expected_first[i] = element.first;
      expected_second[i] = element.second;
      expected_direction[i] = element.direction;
      const float change = kStep * element.direction;
      expected[i] = expected[i] - change;
    }
    lamb_moments(first.data() + offset, second.data() + offset, gradient.data() + offset, count, s);
    lamb_direction(direction.data() + offset, master.data() + offset, first.data() + offset,
                   second.data() + offset, count, s);
    lamb_apply(master.data() + offset, first.data() + offset, second.data() + offset, count, s,
               kStep);
    expect_same_bits(first, expected_first);
    expect_same_bits(second, expected_second);
    expect_same_bits(direction, expected_direction);
    expect_same_bits(master, expected);
  });
}

TEST(Lamb, ScalarsFollowTheEquations) {
  for (const int64_t t : {1, 2, 3, 10, 1000, 1000000}) {
    const LambScalars s = lamb_scalars(t, 0.9, 0.999, 1e-6, 0.1, true, 0.25);
    const double steps = static_cast<double>(t);
    EXPECT_FLOAT_EQ(s.first_scale, static_cast<float>(1 / (1 - std::pow(0.9, steps))));
    EXPECT_FLOAT_EQ(s.root_scale, static_cast<float>(1 / std::sqrt(1 - std::pow(0.999, steps))));
    EXPECT_EQ(s.grad_scale, 0.25f);
    const LambScalars plain = lamb_scalars(t, 0.9, 0.999, 1e-6, 0.1, false, 0.25);
    EXPECT_EQ(plain.first_scale, 1.0f);
    EXPECT_EQ(plain.root_scale, 1.0f);
  }
}

}  // namespace
}  // namespace lockstep::kernels
