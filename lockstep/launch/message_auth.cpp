#include "lockstep/launch/message_auth.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "lockstep/base/error.h"

namespace lockstep::launch {
namespace {

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

std::string new_nonce() {
  std::string nonce(kNonceBytes, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()), kNonceBytes) != 1) {
    throw EnvironmentError("the system gives no random bytes, which nodes need to meet.");
  }
  return nonce;
}

std::string tag_of(std::string_view key, std::string_view text) {
  std::string tag(kTagBytes, '\0');
  const char empty = 0;  // a null pointer would mean "the key of the last call"
  if (HMAC(EVP_sha256(), key.empty() ? &empty : key.data(), static_cast<int>(key.size()),
           bytes_of(text), text.size(), reinterpret_cast<unsigned char*>(tag.data()),
           nullptr) == nullptr) {
    throw EnvironmentError("libcrypto cannot compute HMAC-SHA-256, which nodes need to meet.");
  }
  return tag;
}

bool same_tag(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace lockstep::launch
