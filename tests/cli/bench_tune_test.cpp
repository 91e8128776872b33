#include "lockstep/cli/bench_tune.h"

#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

using plan::Algorithm;

/// One round was disturbed: the median is not, and the spread tells.
TEST(BenchTune, ARoundIsOneOfSeveral) {
  const auto round = [](double direct, double halving) {
    const auto row = [](const char* algorithm, int64_t bytes, const nlohmann::json& in_place) {
      return nlohmann::json{{"algorithm", algorithm},
                            {"bytes", bytes},
                            {"out_of_place", {{"median_us", 77.0}}},
                            {"in_place", in_place}};
    };
    return nlohmann::json{
        {"results",
         {row("direct", 0, {{"median_us", 1.0}}), row("direct", 256, {{"median_us", direct}}),
          row("direct", 64, nullptr), row("halving", 256, {{"median_us", halving}})}}};
  };
  const std::vector<plan::SizeTimes> expected = {
      {64, {{Algorithm::direct, 77, 0}}},
      {256, {{Algorithm::direct, 10, 40}, {Algorithm::halving, 8, 1}}}};
  EXPECT_EQ(times_of({round(10, 8.5), round(50, 8), round(10, 7.5)}), expected);
  EXPECT_EQ(times_of({round(10, 8), round(12, 8)})[1].candidates[0].median_us, 11);
}

}  // namespace
}  // namespace lockstep::cli
