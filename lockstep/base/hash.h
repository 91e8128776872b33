/// Hashes that are part of the contract: their values reach checkpoints and digests, so they never
/// change.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep::base {

/// The finaliser of SplitMix64 (Steele, Lea and Flood 2014): a bijection of 64-bit words in which
/// every input bit reaches every output bit.
constexpr uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

/// FNV-1a, 64 bits.
constexpr uint64_t fnv1a(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3ull;
  }
  return hash;
}

}  // namespace lockstep::base
