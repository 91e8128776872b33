/// How much memory this process has.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <fstream>

namespace lockstep::testing {

/// Bytes of this process in memory, those that it shares and has touched included.
inline int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0;
  int64_t resident = 0;
  file >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace lockstep::testing
