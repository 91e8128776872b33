/// Time at a tenth of a clock call's price: the processor's counter, scaled when it is read out.
#pragma once

#include <chrono>
#include <cstdint>

namespace lockstep::net {

inline int64_t ticks_now() {
#if defined(__x86_64__)
  return static_cast<int64_t>(__builtin_ia32_rdtsc());
#else
  return std::chrono::steady_clock::now().time_since_epoch().count();
#endif
}

/// How long a tick is, from the time since the first call. Precise to a part in ten thousand after
/// a millisecond.
double seconds_per_tick();

}  // namespace lockstep::net
