/// Which tokenizer a GPT-2 model's ids are of, where its file does not say.
#pragma once

#include <string>

#include "lockstep/checkpoint/weights.h"
#include "lockstep/plan/tokenizers.h"

namespace lockstep::checkpoints {

/// GPT-2's own by the size of the vocabulary, also rounded up to the multiple of 64 that other
/// programs make of it; else none is known, and the user is told `why`.
inline void guess_gpt2_tokenizer(WeightOrigin& origin, const std::string& why) {
  constexpr const char* kName = "gpt2";
  const int64_t tokens = plan::tokenizer_vocab_size(kName);
  if (origin.vocab >= tokens && origin.vocab <= (tokens + 63) / 64 * 64) {
    origin.config.data.tokenizer = kName;
  } else {
    origin.knows_tokenizer = false;
    origin.notes.push_back(why);
  }
}

/// model.vocab "auto", if the tokenizer makes as many ids.
inline void set_vocab(WeightOrigin& origin) {
  const std::string& name = origin.config.data.tokenizer;
  const bool same = origin.knows_tokenizer && origin.vocab == plan::tokenizer_vocab_size(name);
  origin.config.model.vocab = same ? 0 : origin.vocab;
}

}  // namespace lockstep::checkpoints
