/// The vocabulary of a byte-pair tokenizer, read from the two forms in which they are published.
///
///   X.tiktoken      a line a token: BASE64 RANK; the rank is the token's id
///   vocab.bpe +     "#version: ...", then a line a merge, "LEFT RIGHT", the first the strongest;
///   encoder.json    {"token": id}; bytes are written as letters (space is U+0120)
///
/// Source  openai/tiktoken tiktoken/load.py, openai/gpt-2 src/encoder.py
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::files {

struct BpeVocabulary {
  /// By id; empty where an id names no token.
  std::vector<std::string> tokens;
  /// By id: of two neighbours, the pair whose join has the lowest rank is joined first.
  std::vector<int32_t> ranks;
};

/// throws  EnvironmentError naming file, line and reason: no base64, no number, a token or a rank
///         that comes twice, a byte that is no token; the file is not there
BpeVocabulary read_tiktoken(const std::string& path);

/// The same vocabulary from GPT-2's pair of files. Tokens of encoder.json that no merge makes
/// (special ones) are left out.
/// throws  EnvironmentError as above; also a merge whose parts or result have no id
BpeVocabulary read_gpt2_vocabulary(const std::string& vocab_bpe, const std::string& encoder_json);

}  // namespace lockstep::files
