/// How much memory a test that takes gigabytes may take.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

namespace lockstep::testing {

/// GiB that programs can still get; 0 where the system does not say.
inline int64_t available_gib() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  for (int64_t kib = 0; file >> name >> kib; file.ignore(64, '\n')) {
    if (name == "MemAvailable:") return kib >> 20;
  }
  return 0;
}

}  // namespace lockstep::testing
