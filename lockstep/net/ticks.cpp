#include "lockstep/net/ticks.h"

#include <algorithm>

namespace lockstep::net {

double seconds_per_tick() {
  using Clock = std::chrono::steady_clock;
  struct Origin {
    int64_t ticks = ticks_now();
    Clock::time_point time = Clock::now();
  };
  static const Origin origin;
  std::chrono::duration<double> passed{};
  int64_t ticks = 0;
  do {
    passed = Clock::now() - origin.time;
    ticks = ticks_now() - origin.ticks;
  } while (passed < std::chrono::milliseconds(1));
  return passed.count() / static_cast<double>(std::max<int64_t>(ticks, 1));
}

}  // namespace lockstep::net
