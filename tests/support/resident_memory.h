/// How much memory this process has.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <fstream>

namespace lockstep::testing {

/// Bytes of this process in memory, those that it shares and has touched included. 0 under a
/// sanitizer, whose own books grow with every page.
inline int64_t resident_bytes() {
#ifdef LOCKSTEP_SANITIZED
  return 0;
#endif
  std::ifstream file("/proc/self/statm");
  int64_t size = 0;
  int64_t resident = 0;
  file >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace lockstep::testing
