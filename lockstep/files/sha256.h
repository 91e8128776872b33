/// SHA-256, to tell whether data are the ones they should be. Not for secrets.
///
/// Source  FIPS 180-4, section 6.2
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::files {

class Sha256 {
 public:
  Sha256();
  void update(std::string_view bytes);
  /// The digest in hexadecimal. Call once, last.
  std::string hex();

 private:
  void block(const unsigned char* bytes);

  std::array<uint32_t, 8> state_;
  std::array<unsigned char, 64> pending_{};  // bytes that do not fill a block yet
  uint64_t length_ = 0;
};

std::string sha256_hex(std::string_view bytes);

}  // namespace lockstep::files
