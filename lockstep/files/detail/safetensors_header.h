/// The JSON header of a safetensors file, read strictly.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/files/safetensors.h"

namespace lockstep::files::detail {

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::vector<std::pair<std::string, SafetensorsFile::Info>> tensors;  // in the order of the data
  std::vector<uint32_t> by_name;  // positions in `tensors`, sorted by name
};

/// Reads `text` and checks that its tensors cover `data_bytes` without hole or overlap. Throws
/// StateError with the reason alone: the caller knows the file's name.
///
/// Holds   at most 16 bytes for each of `text`, whatever is written in it     test: HostileHeaders
/// Costs   n log n in the bytes n of `text`; nothing recurses
SafetensorsHeader parse_safetensors_header(std::string_view text, int64_t data_bytes);

/// Bytes of a tensor, or -1 if that is no whole number of bytes or overflows.
int64_t tensor_bytes(int dtype_bits, const std::vector<int64_t>& shape);

}  // namespace lockstep::files::detail
