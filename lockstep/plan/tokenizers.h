/// The tokenizers there are, by name: what a config may ask for, and how many ids that makes. The
/// tokenizers themselves are in files/tokenizer.h.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "lockstep/base/assert.h"

namespace lockstep::plan {

struct TokenizerName {
  std::string_view name;
  int64_t vocab_size;  // special ids and gaps before them included
};

/// "gpt2" is another name of "r50k".
inline constexpr std::array<TokenizerName, 6> kTokenizers = {{{"bytes", 256},
                                                              {"r50k", 50'257},
                                                              {"gpt2", 50'257},
                                                              {"p50k", 50'281},
                                                              {"cl100k", 100'277},
                                                              {"o200k", 200'019}}};

/// `name` is one of the table.
inline int64_t tokenizer_vocab_size(std::string_view name) {
  for (const auto& tokenizer : kTokenizers) {
    if (tokenizer.name == name) return tokenizer.vocab_size;
  }
  LOCKSTEP_ASSERT(false, "tokenizer names are checked when a config is read");
  return 0;
}

}  // namespace lockstep::plan
