// A fault of every kind at every named point of a call, on every rank: 256 jobs.
#include "tests/net/planted_faults.h"

namespace lockstep::net::testing {
namespace {

std::vector<PlantedFault> all_faults() {
  std::vector<PlantedFault> faults;
  for (const std::string_view point : kPointNames) {
    for (const std::string& kind : kFaults) {
      for (int victim = 0; victim < kPlantedRanks; ++victim) {
        faults.push_back({std::string(point), kind, victim, faults.size()});
      }
    }
  }
  return faults;
}

TEST(LongPlantedFaults, AllEndEveryRankInTimeWithTheRightError) {
  for (const PlantedFault& fault : all_faults()) {
    SCOPED_TRACE(name_of(fault));
    check_planted(fault);
  }
}

}  // namespace
}  // namespace lockstep::net::testing
