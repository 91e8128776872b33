// The header of a safetensors file. The first byte of the input is the size of the data.

#include "lockstep/files/detail/safetensors_header.h"

#include <set>

#include "lockstep/base/error.h"
#include "tests/fuzz/target.h"

LOCKSTEP_FUZZ_TARGET(safetensors_header) {
  using namespace lockstep;
  if (bytes.empty()) return;
  const int64_t data_bytes = static_cast<unsigned char>(bytes.front());
  files::detail::SafetensorsHeader header;
  try {
    header = files::detail::parse_safetensors_header(bytes.substr(1), data_bytes);
  } catch (const StateError&) {
    return;
  }
  int64_t covered = 0;
  std::set<std::string> names;
  for (const auto& [name, info] : header.tensors) {
    fuzz::require(info.offset == covered, "a hole or an overlap");
    const int bits = files::safetensors_dtype_bits(info.dtype);
    fuzz::require(bits > 0, "an unknown dtype");
    __int128 numel = 1;
    for (const int64_t size : info.shape) {
      fuzz::require(size >= 0, "a negative size");
      numel *= size;
      fuzz::require(numel <= data_bytes * 8 || info.bytes == 0, "more elements than bits");
      if (numel > (int64_t{1} << 62)) numel = 0;  // of an empty tensor
    }
    fuzz::require(info.bytes == 0 || numel * bits == info.bytes * 8, "not the bytes of its shape");
    covered += info.bytes;
    fuzz::require(names.insert(name).second, "a name twice");
  }
  fuzz::require(covered == data_bytes, "data that belong to no tensor");
  fuzz::require(header.by_name.size() == names.size(), "a name that cannot be found");
  auto name = names.begin();
  for (const uint32_t at : header.by_name) {
    fuzz::require(header.tensors.at(at).first == *name++, "names out of order");
  }
}
