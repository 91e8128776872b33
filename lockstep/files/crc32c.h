/// CRC-32C (Castagnoli), the checksum of TensorBoard's records.
///
/// Source  Castagnoli, Braeuer and Herrmann 1993, IEEE Trans. Communications 41(6)
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace lockstep::files {

namespace detail {

inline constexpr std::array<uint32_t, 256> kCrc32cTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = rest & 1 ? rest >> 1 ^ 0x82f63b78u : rest >> 1;
    table[byte] = rest;
  }
  return table;
}();

}  // namespace detail

constexpr uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = ~uint32_t{0};
  for (const char c : bytes) {
    crc = crc >> 8 ^ detail::kCrc32cTable[(crc ^ static_cast<unsigned char>(c)) & 0xff];
  }
  return ~crc;
}

static_assert(crc32c("123456789") == 0xe3069283u, "the check value of the polynomial");

}  // namespace lockstep::files
