/// The simplest tokenizer: a token is a byte. Any text, or any bytes at all, come back unchanged.
#pragma once

#include "lockstep/files/tokenizer.h"

namespace lockstep::files {

class ByteTokenizer : public Tokenizer {
 public:
  static constexpr const char* kName = "bytes";
  static constexpr int64_t kVocabSize = 256;

  using Tokenizer::encode;
  const std::string& name() const override;
  int64_t vocab_size() const override { return kVocabSize; }
  std::optional<int64_t> end_of_text() const override { return std::nullopt; }
  void encode(std::string_view text, std::vector<int64_t>* ids) override;
  std::optional<std::string_view> token(int64_t id) const override;
};

}  // namespace lockstep::files
