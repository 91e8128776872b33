/// What two ends that share a secret need so that each believes the other: random numbers nobody
/// has seen before, keyed hashes, and a comparison that takes the same time whatever differs.
///
/// Source  HMAC: RFC 2104, with SHA-256 of OpenSSL's libcrypto;
/// docs/decisions/0008-the-job-token.md
#pragma once

#include <string>
#include <string_view>

namespace lockstep::launch {

inline constexpr size_t kNonceBytes = 16;
inline constexpr size_t kTagBytes = 32;

/// 16 random bytes. Throws EnvironmentError where the system has none.
std::string new_nonce();

/// HMAC-SHA-256 of `text` under `key`: 32 bytes. An empty key is allowed, and keeps no secret.
std::string tag_of(std::string_view key, std::string_view text);

/// Whether two tags agree, in a time that does not tell where they differ.
bool same_tag(std::string_view a, std::string_view b);

}  // namespace lockstep::launch
