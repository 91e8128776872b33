// SGD, LARS and LAMB against the papers' equations in fp64, and the cases that others got wrong.
#include "lockstep/optim/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "lockstep/base/counter_random.h"
#include "lockstep/base/error.h"
#include "tests/optim/whole_step.h"

namespace lockstep::optim {
namespace {

using Values = std::vector<float>;

// In place: spans point into `values`.
void draw(Values& values, uint64_t seed) {
  const base::RandomKey key(seed);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(key.uniform(i) - 0.5);
}

void expect_near(const Values& got, const std::vector<double>& expected, double bound) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], bound) << i;
}

double norm_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

/// The papers' algorithms in fp64, over one parameter.
struct Exact {
  std::vector<double> master, first, second;

  explicit Exact(const Values& start)
      : master(start.begin(), start.end()), first(start.size()), second(start.size()) {}

  void sgd(const Values& gradient, double lr, double scale, double momentum, double decay) {
    for (size_t i = 0; i < master.size(); ++i) {
      first[i] = momentum * first[i] + scale * gradient[i] + decay * master[i];
      master[i] -= lr * first[i];
    }
  }

  void lars(const Values& gradient, double lr, double scale, const LarsOptions& o) {
    std::vector<double> scaled;
    for (const float g : gradient) scaled.push_back(scale * g);
    const double weight = norm_of(master);
    const double local = o.trust * weight / (norm_of(scaled) + o.weight_decay * weight);
    for (size_t i = 0; i < master.size(); ++i) {
      first[i] = o.momentum * first[i] + lr * local * (scaled[i] + o.weight_decay * master[i]);
      master[i] -= first[i];
    }
  }

  void lamb(const Values& gradient, int64_t t, double lr, double scale, const LambOptions& o) {
    const auto steps = static_cast<double>(t);
    std::vector<double> direction;
    for (size_t i = 0; i < master.size(); ++i) {
      const double g = scale * gradient[i];
      first[i] = o.beta1 * first[i] + (1 - o.beta1) * g;
      second[i] = o.beta2 * second[i] + (1 - o.beta2) * g * g;
      const double m = first[i] / (1 - std::pow(o.beta1, steps));
      const double v = second[i] / (1 - std::pow(o.beta2, steps));
      direction.push_back(m / (std::sqrt(v) + o.eps) + o.weight_decay * master[i]);
    }
    const double ratio = norm_of(master) / norm_of(direction);
    for (size_t i = 0; i < master.size(); ++i) master[i] -= lr * ratio * direction[i];
  }
};

constexpr int64_t kCount = 4096 + 700;  // more than a block, a last chunk that is not whole
constexpr int64_t kSteps = 20;
constexpr double kLr = 1e-2;
constexpr double kScale = 0.5;
// Each step rounds a weight (below 1) twice, by at most 2^-25 each, and its change, which is below
// 0.1 here, by a dozen roundings of 2^-24; moments forget their roundings within ten steps. Four
// times that is the bound.
constexpr double kBound = 4 * kSteps * (2 * 0x1p-25 + 12 * 0.1 * 0x1p-24);

TEST(Sgd, FollowsThePaper) {
  Values master(kCount), gradient(kCount);
  draw(master, 1);
  Exact exact(master);
  Sgd optimizer({.momentum = 0.9, .weight_decay = 0.2},
                {{master.data(), gradient.data(), kCount, true}});
  for (int64_t t = 1; t <= kSteps; ++t) {
    draw(gradient, 100 + static_cast<uint64_t>(t));
    optimizer.step(kLr, kScale);
    exact.sgd(gradient, kLr, kScale, 0.9, 0.2);
  }
  expect_near(master, exact.master, kBound);
  EXPECT_EQ(optimizer.state_bytes(), 4 * kCount);
  EXPECT_EQ(optimizer.steps_taken(), kSteps);
}

TEST(Lars, FollowsThePaper) {
  Values master(kCount), gradient(kCount);
  draw(master, 2);
  Exact exact(master);
  const LarsOptions options{.momentum = 0.9, .weight_decay = 0.2, .trust = 0.5};
  Lars optimizer(options, {{master.data(), gradient.data(), kCount, true}});
  for (int64_t t = 1; t <= kSteps; ++t) {
    draw(gradient, 200 + static_cast<uint64_t>(t));
    whole_step(optimizer, {kCount}, kLr, kScale);
    exact.lars(gradient, kLr, kScale, options);
  }
  expect_near(master, exact.master, kBound);
  EXPECT_EQ(optimizer.state_bytes(), 4 * kCount);
}

TEST(Lamb, FollowsThePaper) {
  Values master(kCount), gradient(kCount);
  draw(master, 3);
  Exact exact(master);
  const LambOptions options{.weight_decay = 0.2};
  Lamb optimizer(options, {{master.data(), gradient.data(), kCount, true}});
  for (int64_t t = 1; t <= kSteps; ++t) {
    draw(gradient, 300 + static_cast<uint64_t>(t));
    whole_step(optimizer, {kCount}, kLr, kScale);
    exact.lamb(gradient, t, kLr, kScale, options);
  }
  expect_near(master, exact.master, kBound);
  EXPECT_EQ(optimizer.state_bytes(), 8 * kCount);
}

/// Cuts of a parameter at chunk edges, as shards have them.
TEST(TrustRatios, CutsOfTheSpansDoNotMatter) {
  const auto trained = [](const auto& options, const std::vector<int64_t>& counts) {
    Values master(kCount), gradient(kCount);
    draw(master, 4);
    std::vector<Span> spans;
    int64_t first = 0;
    for (const int64_t count : counts) {
      spans.push_back({master.data() + first, gradient.data() + first, count, true});
      first += count;
    }
    const auto optimizer = make_updater(options, spans);
    for (uint64_t t = 0; t < 5; ++t) {
      draw(gradient, 400 + t);
      whole_step(dynamic_cast<TrustUpdater&>(*optimizer), counts, 1e-2, 1, {{0, counts.size()}});
    }
    return master;
  };
  for (const OptimizerOptions& options : {OptimizerOptions(LarsOptions{}), {LambOptions{}}}) {
    const Values whole = trained(options, {kCount});
    EXPECT_EQ(trained(options, {256, kCount - 256}), whole);
    EXPECT_EQ(trained(options, {256, 0, 4096, kCount - 4352}), whole);
  }
}

TEST(Lamb, OPT_1_BiasCorrectionIsASwitch) {
  for (const auto& [correction, expected] :
       {std::pair{true, std::vector<double>{2.546020, 4.209529}},
        std::pair{false, std::vector<double>{2.609152, 4.311830}}}) {
    Values master = {3, 4};
    const Values gradient = {1, -2};
    Lamb optimizer({.beta1 = 0.9,
                    .beta2 = 0.999,
                    .eps = 1e-6,
                    .weight_decay = 0.1,
                    .bias_correction = correction},
                   {{master.data(), gradient.data(), 2, true}});
    whole_step(optimizer, {2}, 0.1);
    expect_near(master, expected, 1e-5);
  }
}

Values after_lars(Values master, const Values& gradient, double decay) {
  Lars optimizer({.weight_decay = decay, .trust = 0.001},
                 {{master.data(), gradient.data(), 2, true}});
  whole_step(optimizer, {2}, 1);
  return master;
}

TEST(Lars, OPT_2_ZeroNormsTakeThePlainRate) {
  expect_near(after_lars({0, 0}, {1, 1}, 0), {-1, -1}, 0);
  expect_near(after_lars({3, 4}, {0, 2}, 0), {3, 3.995}, 1e-6);
  expect_near(after_lars({3, 4}, {0, 2}, 0.1), {2.9994, 3.9952}, 1e-6);
  // No gradient: the plain rate, which decays.
  expect_near(after_lars({3, 4}, {0, 0}, 0.1), {2.7, 3.6}, 1e-6);
}

TEST(Lamb, ZeroNormsHaveTheRatioOne) {
  Values zero = {0, 0}, still = {3, 4};
  const Values gradient = {1, -1}, none = {0, 0};
  Lamb optimizer({.weight_decay = 0},
                 {{zero.data(), gradient.data(), 2, false}, {still.data(), none.data(), 2, false}});
  whole_step(optimizer, {2, 2}, 0.1);
  expect_near(zero, {-0.1, 0.1}, 1e-7);
  EXPECT_EQ(still, (Values{3, 4}));
}

template <class Options>
void expect_refused(const Options& options, const std::string& message) {
  try {
    make_updater(options, {});
    ADD_FAILURE() << "accepted: " << message;
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find(message), std::string::npos)
        << error.what() << " does not say: " << message;
  }
}

TEST(Optimizers, OPT_3_RefuseEachBadOptionByName) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  expect_refused(AdamWOptions{.beta2 = 1}, "AdamW: beta2 is 1");
  expect_refused(AdamWOptions{.beta1 = -0.1}, "AdamW: beta1 is -0.1");
  expect_refused(LambOptions{.beta2 = 1}, "LAMB: beta2 is 1");
  expect_refused(LambOptions{.beta1 = -0.1}, "LAMB: beta1 is -0.1");
  expect_refused(LambOptions{.eps = 0}, "LAMB: eps is 0");
  expect_refused(LambOptions{.eps = -1e-8}, "LAMB: eps is -1e-08");
  expect_refused(LambOptions{.eps = 1e-60}, "LAMB: eps is");
  expect_refused(LambOptions{.weight_decay = -1}, "LAMB: weight_decay is -1");
  expect_refused(SgdOptions{.momentum = 1}, "SGD: momentum is 1");
  expect_refused(SgdOptions{.momentum = nan}, "SGD: momentum is nan");
  expect_refused(SgdOptions{.weight_decay = -1}, "SGD: weight_decay is -1");
  expect_refused(LarsOptions{.momentum = -0.5}, "LARS: momentum is -0.5");
  expect_refused(LarsOptions{.trust = 0}, "LARS: trust is 0");
  expect_refused(LarsOptions{.trust = nan}, "LARS: trust is nan");
  expect_refused(LarsOptions{.weight_decay = nan}, "LARS: weight_decay is nan");
}

TEST(Optimizers, OPT_3_RefuseABadRate) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Values master = {1};
  const Values gradient = {1};
  const std::vector<Span> spans = {{master.data(), gradient.data(), 1, true}};
  EXPECT_THROW(Sgd({}, spans).step(nan, 1), UsageError);
  EXPECT_THROW(Sgd({}, spans).step(-1, 1), UsageError);
  EXPECT_THROW(Sgd({}, spans).step(1, nan), UsageError);
  for (const OptimizerOptions& options : {OptimizerOptions(LarsOptions{}), {LambOptions{}}}) {
    const auto step = [&](double lr, double grad_scale) {
      whole_step(dynamic_cast<TrustUpdater&>(*make_updater(options, spans)), {1}, lr, grad_scale);
    };
    EXPECT_THROW(step(nan, 1), UsageError);
    EXPECT_THROW(step(-1, 1), UsageError);
    EXPECT_THROW(step(1, nan), UsageError);
  }
  EXPECT_EQ(master[0], 1.0f);
}

TEST(Optimizers, KindsFollowThePlan) {
  EXPECT_EQ(kind_of(AdamWOptions{}), plan::Optimizer::adamw);
  EXPECT_EQ(kind_of(SgdOptions{}), plan::Optimizer::sgd);
  EXPECT_EQ(kind_of(LarsOptions{}), plan::Optimizer::lars);
  EXPECT_EQ(kind_of(LambOptions{}), plan::Optimizer::lamb);
  Values master(5), gradient(5);
  for (const plan::OptimizerName& known : plan::kOptimizers) {
    plan::TrainConfig config;
    config.optim.name = known.name;
    const auto updater =
        make_updater(options_of(config), {{master.data(), gradient.data(), 5, true}});
    EXPECT_EQ(updater->state_bytes(), 4 * 5 * known.moments) << known.name;
    EXPECT_EQ(dynamic_cast<TrustUpdater*>(updater.get()) != nullptr, known.has_ratios);
    EXPECT_NE(updater->moment(known.moments - 1, 0), nullptr);
    EXPECT_EQ(updater->moment(known.moments, 0), nullptr);
  }
}

/// Each span's rate is its multiple of the step's: with one gradient the steps are in its ratio.
TEST(Optimizers, LR_1_EachSpanHasItsOwnRate) {
  for (const OptimizerOptions& options : {OptimizerOptions(AdamWOptions{.weight_decay = 0}),
                                          {SgdOptions{.weight_decay = 0}},
                                          {LarsOptions{.weight_decay = 0}},
                                          {LambOptions{.weight_decay = 0}}}) {
    Values one = {1, 1}, four = {1, 1}, none = {1, 1};
    const Values gradient = {0.5, -0.25};
    const auto updater = make_updater(options, {{one.data(), gradient.data(), 2, false, 1},
                                                {four.data(), gradient.data(), 2, false, 4},
                                                {none.data(), gradient.data(), 2, false, 0}});
    if (auto* const trust = dynamic_cast<TrustUpdater*>(updater.get())) {
      whole_step(*trust, {2, 2, 2}, 1e-2);
    } else {
      updater->step(1e-2, 1);
    }
    EXPECT_NE(one[0], 1.0f);
    for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(four[i] - 1, 4 * (one[i] - 1), 4 * 0x1p-24);
    EXPECT_EQ(none, (Values{1, 1}));
  }
}

}  // namespace
}  // namespace lockstep::optim
