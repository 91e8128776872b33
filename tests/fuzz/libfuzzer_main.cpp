// What libFuzzer calls. Each of its programs has one target.

#include <cstddef>
#include <cstdint>

#include "tests/fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const lockstep::fuzz::Target target = lockstep::fuzz::targets().front();
  target.run({reinterpret_cast<const char*>(data), size});
  return 0;
}
