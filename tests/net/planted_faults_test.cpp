// Faults at named points of a call: each point, each kind and each rank at least once. All of
// them: long/planted_faults_test.cpp.
#include "tests/net/planted_faults.h"

namespace lockstep::net::testing {
namespace {

std::vector<PlantedFault> some_faults() {
  std::vector<PlantedFault> faults;
  for (size_t p = 0; p < kPointNames.size(); ++p) {
    // Stops take their timeout: every third point.
    const std::string kind = p % 3 == 0 ? "stop" : p % 3 == 1 ? "kill" : "exception";
    const int victim = static_cast<int>((p * 5 + 1) % kPlantedRanks);
    faults.push_back({std::string(kPointNames[p]), kind, victim, 1000 + p});
  }
  for (const Point point : {Point::announced, Point::round_started, Point::step, Point::join}) {
    const auto p = static_cast<size_t>(point);
    faults.push_back(
        {std::string(kPointNames[p]), "delay", static_cast<int>(p) % kPlantedRanks, p});
  }
  return faults;
}

class PlantedFaults : public ::testing::TestWithParam<PlantedFault> {};
INSTANTIATE_TEST_SUITE_P(Points, PlantedFaults, ::testing::ValuesIn(some_faults()),
                         [](const auto& info) { return name_of(info.param); });

TEST_P(PlantedFaults, EndEveryRankInTimeWithTheRightError) { check_planted(GetParam()); }

TEST(PlantedFaultsAlone, WithoutAFaultEveryRankPassesEveryPoint) {
  for (int rank = 0; rank < kPlantedRanks; ++rank) {
    EXPECT_EQ(unplanted()[static_cast<size_t>(rank)].exit_code, 0);
    EXPECT_EQ(unplanted()[static_cast<size_t>(rank)].err, "");
    for (const std::string_view point : kPointNames) {
      EXPECT_GT(passes_of(rank, std::string(point)), 0) << point << " on rank " << rank;
    }
  }
}

}  // namespace
}  // namespace lockstep::net::testing
