#include "lockstep/optim/adamw.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "lockstep/base/counter_random.h"
#include "lockstep/base/error.h"

namespace lockstep::optim {
namespace {

// In place: spans point into `values`.
void draw(std::vector<float>& values, uint64_t seed) {
  const base::RandomKey key(seed);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(key.uniform(i) - 0.5);
}

// The paper's algorithm in fp64.
struct Exact {
  double master, first = 0, second = 0;

  void step(double gradient, int64_t t, double lr, const AdamWOptions& o, bool decay) {
    first = o.beta1 * first + (1 - o.beta1) * gradient;
    second = o.beta2 * second + (1 - o.beta2) * gradient * gradient;
    const double steps = static_cast<double>(t);
    const double first_hat = first / (1 - std::pow(o.beta1, steps));
    const double second_hat = second / (1 - std::pow(o.beta2, steps));
    if (decay) master -= lr * o.weight_decay * master;
    master -= lr * first_hat / (std::sqrt(second_hat) + o.eps);
  }
};

TEST(AdamW, FollowsThePaper) {
  constexpr int64_t kCount = 37;
  constexpr int64_t kSteps = 20;
  constexpr double kLr = 1e-2;
  const AdamWOptions options{.weight_decay = 0.2};
  std::vector<float> master(kCount);
  draw(master, 1);
  std::vector<float> gradient(kCount);
  std::vector<Exact> exact;
  for (const float value : master) exact.push_back({.master = value});
  // Two spans with unlike rules, and one of nothing between them.
  constexpr int64_t kCut = 13;
  AdamW optimizer(options, {{master.data(), gradient.data(), kCut, true},
                            {nullptr, nullptr, 0, true},
                            {master.data() + kCut, gradient.data() + kCut, kCount - kCut, false}});
  for (int64_t t = 1; t <= kSteps; ++t) {
    draw(gradient, 100 + static_cast<uint64_t>(t));
    optimizer.step(kLr, 0.5);
    for (int64_t i = 0; i < kCount; ++i) {
      exact[i].step(0.5 * gradient[i], t, kLr, options, i < kCut);
    }
  }
  EXPECT_EQ(optimizer.steps_taken(), kSteps);
  EXPECT_EQ(optimizer.state_bytes(), 8 * kCount);
  for (int64_t i = 0; i < kCount; ++i) {
    // Each step rounds the weight (below 1) twice, by at most 2^-25 each, and its change, about lr,
    // by a dozen roundings of 2^-24; the moments' roundings decay. Four times that is the bound.
    const double bound = 4 * kSteps * (2 * 0x1p-25 + 12 * kLr * 0x1p-24);
    EXPECT_NEAR(master[i], exact[i].master, bound) << i;
  }
}

TEST(AdamW, CutsOfTheSpansDoNotMatter) {
  constexpr int64_t kCount = 101;
  const auto trained = [&](const std::vector<int64_t>& cuts) {
    std::vector<float> master(kCount);
    draw(master, 2);
    std::vector<float> gradient(kCount);
    std::vector<Span> spans;
    int64_t first = 0;
    for (const int64_t end : cuts) {
      spans.push_back({master.data() + first, gradient.data() + first, end - first, true});
      first = end;
    }
    AdamW optimizer({}, spans);
    for (uint64_t t = 0; t < 5; ++t) {
      draw(gradient, 200 + t);
      optimizer.step(1e-2, 1.0);
    }
    return master;
  };
  const std::vector<float> whole = trained({kCount});
  EXPECT_EQ(trained({1, 2, 19, 50, 97, kCount}), whole);
  EXPECT_EQ(trained({33, 66, kCount}), whole);
}

TEST(AdamW, DecayIsDecoupled) {
  std::vector<float> master = {1.0f, -2.0f};
  const std::vector<float> gradient = {0.0f, 0.0f};
  AdamW optimizer({.weight_decay = 0.5}, {{master.data(), gradient.data(), 2, true}});
  optimizer.step(0.5, 1.0);  // without a gradient the weights only shrink, by 1 - 0.25
  EXPECT_EQ(master, (std::vector<float>{0.75f, -1.5f}));
}

TEST(AdamW, RefusesEachBadOptionByName) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const std::pair<AdamWOptions, std::string> bad[] = {
      {{.beta1 = -0.1}, "beta1 is -0.1"},
      {{.beta1 = 1}, "beta1 is 1"},
      {{.beta1 = nan}, "beta1 is nan"},
      {{.beta2 = 1}, "beta2 is 1"},
      {{.beta2 = -1}, "beta2 is -1"},
      {{.beta2 = nan}, "beta2 is nan"},
      {{.eps = 0}, "eps is 0"},
      {{.eps = -1}, "eps is -1"},
      {{.eps = 1e-60}, "eps is"},
      {{.eps = nan}, "eps is nan"},
      {{.weight_decay = -1}, "weight_decay is -1"},
      {{.weight_decay = infinity}, "weight_decay is inf"},
      {{.weight_decay = nan}, "weight_decay is nan"},
  };
  for (const auto& [options, message] : bad) {
    try {
      AdamW optimizer(options, {});
      ADD_FAILURE() << "accepted: " << message;
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos)
          << error.what() << " does not say: " << message;
    }
  }
}

TEST(AdamW, RefusesABadStepAndChangesNothing) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<float> master = {1.0f};
  const std::vector<float> gradient = {1.0f};
  AdamW optimizer({}, {{master.data(), gradient.data(), 1, true}});
  EXPECT_THROW(optimizer.step(nan, 1), UsageError);
  EXPECT_THROW(optimizer.step(-1e-3, 1), UsageError);
  EXPECT_THROW(optimizer.step(1e-3, nan), UsageError);
  EXPECT_EQ(master[0], 1.0f);
  EXPECT_EQ(optimizer.steps_taken(), 0);
}

}  // namespace
}  // namespace lockstep::optim
