// A whole safetensors file: what opens can be read, whole and in parts, and nothing beside it.

#include "lockstep/files/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "lockstep/base/error.h"
#include "tests/fuzz/target.h"
#include "tests/fuzz/unnamed_file.h"

namespace {

using lockstep::StateError;
using lockstep::files::SafetensorsFile;

bool reads(const SafetensorsFile& file, const std::string& name, int64_t first, int64_t bytes) {
  std::vector<char> out(static_cast<size_t>(std::clamp<int64_t>(bytes, 0, 1 << 20)));
  try {
    file.read_part(name, first, bytes, out.data());
    return true;
  } catch (const StateError&) {
    return false;
  }
}

}  // namespace

LOCKSTEP_FUZZ_TARGET(safetensors_file) {
  using lockstep::fuzz::require;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const lockstep::fuzz::UnnamedFile on_disk(bytes);
  try {
    const auto file = SafetensorsFile::open(on_disk.path());
    const std::string header = file.header_bytes();
    require(bytes.starts_with(header), "another header");
    for (const auto& name : file.names()) {
      const auto& info = file.info(name);
      const int64_t begin = std::ssize(header) + info.offset;
      require(info.offset >= 0 && info.bytes >= 0 && begin + info.bytes <= std::ssize(bytes),
              "a tensor beyond the end");
      std::vector<char> values(static_cast<size_t>(info.bytes));
      file.read(name, values.data(), info.bytes);
      require(std::equal(values.begin(), values.end(), bytes.begin() + begin), "other values");
      require(reads(file, name, info.bytes, 0) && reads(file, name, 0, info.bytes / 2),
              "a part that cannot be read");
      require(!reads(file, name, 0, info.bytes + 1) && !reads(file, name, info.bytes, 1) &&
                  !reads(file, name, kMost, kMost) && !reads(file, name, -1, 1),
              "a part beyond the tensor");
    }
    require(!file.has("no such tensor of any file"), "a tensor of any name");
  } catch (const StateError&) {
  }
}
