#include "lockstep/files/idx.h"

#include <zlib.h>

#include <algorithm>
#include <string_view>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/files/mapped_file.h"

namespace lockstep::files {
namespace {

constexpr size_t kMostBytes = 1024 * MiB;
constexpr size_t kMostDims = 3;

bool is_gzip(std::string_view bytes) { return bytes.starts_with("\x1f\x8b"); }

/// One gzip member, checked by zlib's checksum. Throws a reason without the file.
std::string unpacked(std::string_view packed) {
  std::string raw;
  z_stream stream{};
  constexpr int kGzipOnly = 16 + MAX_WBITS;
  if (inflateInit2(&stream, kGzipOnly) != Z_OK) throw EnvironmentError("zlib does not start");
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(std::min<size_t>(packed.size(), UINT32_MAX));
  std::string piece(1 * MiB, '\0');
  int status = Z_OK;
  while (status == Z_OK && raw.size() <= kMostBytes) {
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = static_cast<uInt>(piece.size());
    status = inflate(&stream, Z_NO_FLUSH);
    raw.append(piece, 0, piece.size() - stream.avail_out);
  }
  const bool all_read = stream.avail_in == 0;
  inflateEnd(&stream);
  if (raw.size() > kMostBytes) throw EnvironmentError("it unpacks to more than 1 GiB");
  if (status != Z_STREAM_END) throw EnvironmentError("it does not unpack: cut short or changed");
  if (!all_read) throw EnvironmentError("bytes follow its end");
  return raw;
}

uint32_t word_at(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (const char c : bytes.substr(at, 4)) value = value << 8 | static_cast<unsigned char>(c);
  return value;
}

IdxArray parsed(std::string raw) {
  constexpr size_t kMagic = 4;
  if (raw.size() < kMagic || raw[0] != 0 || raw[1] != 0) {
    throw EnvironmentError("it does not begin as an IDX file");
  }
  if (raw[2] != 8) throw EnvironmentError("its elements are no bytes");
  const auto dims = static_cast<size_t>(static_cast<unsigned char>(raw[3]));
  if (dims < 1 || dims > kMostDims) {
    throw EnvironmentError(base::str("it has ", dims, " dims, not 1 to ", kMostDims));
  }
  const size_t header = kMagic + 4 * dims;
  if (raw.size() < header) throw EnvironmentError("it ends inside its header");
  IdxArray array;
  uint64_t count = 1;
  for (size_t d = 0; d < dims; ++d) {
    const uint32_t size = word_at(raw, kMagic + 4 * d);
    array.dims.push_back(size);
    count *= size;  // three of 32 bits may wrap: no factor may pass what can be there
    if (count > kMostBytes) throw EnvironmentError("its dims are beyond belief");
  }
  if (count != raw.size() - header) {
    throw EnvironmentError(
        base::str("its dims say ", count, " bytes, and it has ", raw.size() - header));
  }
  raw.erase(0, header);
  array.bytes = std::move(raw);
  return array;
}

}  // namespace

IdxArray read_idx(const std::string& path) {
  try {
    const MappedFile file(path);
    return parsed(is_gzip(file.text()) ? unpacked(file.text()) : std::string(file.text()));
  } catch (const std::system_error& error) {
    throw EnvironmentError(base::str("cannot read ", path, ": ", error.code().message(), "."));
  } catch (const EnvironmentError& error) {
    throw EnvironmentError(base::str(path, " is no IDX file: ", error.what(), "."));
  }
}

}  // namespace lockstep::files
