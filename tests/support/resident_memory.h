/// How much memory this process has.
#pragma once

#include <malloc.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>

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

/// The most that `action` adds to `resident_bytes`, whatever it has let go of at its end. 0 under a
/// sanitizer, and where the system cannot forget an earlier peak.
template <class Action>
int64_t peak_bytes_of(const Action& action) {
  const auto peak = [] {
    std::ifstream file("/proc/self/status");
    std::string word;
    int64_t kib = 0;
    while (file >> word && word != "VmHWM:") {
    }
    file >> kib;
    return kib * 1024;
  };
  malloc_trim(0);  // else what others have left would be filled unseen
  std::ofstream forget("/proc/self/clear_refs");
  forget << 5 << std::flush;
  const int64_t before = resident_bytes();
  action();
  return forget.good() && before > 0 ? peak() - before : 0;
}

}  // namespace lockstep::testing
