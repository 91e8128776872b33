/// The simplest tokenizer: a token is a byte. Any text, or any bytes at all, come back unchanged.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::files {

struct ByteTokenizer {
  static constexpr const char* kName = "bytes";
  static constexpr int64_t kVocabSize = 256;

  static std::vector<int64_t> encode(std::string_view text) {
    std::vector<int64_t> ids;
    ids.reserve(text.size());
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }

  /// Throws UsageError naming the first id that is no byte.
  static std::string decode(const std::vector<int64_t>& ids) {
    std::string text;
    text.reserve(ids.size());
    for (const int64_t id : ids) {
      if (id < 0 || id >= kVocabSize) {
        throw UsageError(base::str("id ", id, " at position ", text.size(),
                                   " is no byte: the tokenizer \"bytes\" has ids 0 to 255."));
      }
      text += static_cast<char>(id);
    }
    return text;
  }
};

}  // namespace lockstep::files
