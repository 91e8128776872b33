/// A folder of training data: `train.bin` and `val.bin` (token_layout.h; for Megatron with their
/// .idx), and `meta.json`, which says what the tokens are. A folder that has it is whole.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/files/token_layout.h"
#include "lockstep/files/tokenizer.h"

namespace lockstep::files {

struct TokenMeta {
  std::string tokenizer;  // "bytes"
  int64_t vocab_size = 0;
  std::string dtype = "uint16";  // of the tokens, where the format itself does not say
  std::string source;            // where the text came from, for people
  std::string sha256;            // of the text: training part, then validation part
};

struct TokenDataOptions {
  std::string folder = {};  // made if need be
  std::string source = {};  // for people
  TokenFormat format = TokenFormat::nanogpt;
  /// The last part of the text, by bytes: 0 < valid_fraction < 1. The cut goes through a text, not
  /// through a character; a line of .jsonl stays whole.
  double valid_fraction = 0.1;
  /// Told every few MiB: bytes read, bytes in all, tokens made.
  std::function<void(int64_t, int64_t, int64_t)> progress = {};
};

struct TokenDataCounts {
  int64_t train_tokens = 0;
  int64_t valid_tokens = 0;
  int64_t documents = 0;
};

/// Tokens of one text. Its memory may be a mapped file: tokens are made piece by piece.
///
/// throws  EnvironmentError: too little text for both parts, the folder cannot be made.
///         StateError: a file cannot be written
TokenDataCounts write_token_data(std::string_view text, Tokenizer& tokenizer,
                                 const TokenDataOptions& options);

/// Tokens of a file, or of all .txt and .jsonl files below a folder, in the order of their paths. A
/// .txt file is a document, a line of .jsonl is one, its text under "text". In a folder and in
/// .jsonl each document is followed by the tokenizer's end-of-text id, where it has one. Memory:
/// some MiB, or the longest line.
///
/// throws  also EnvironmentError: a file cannot be read or is no text, a line is no JSON object
///         with a "text" (naming file and line), nothing is found
TokenDataCounts write_token_data_of(const std::string& path, Tokenizer& tokenizer,
                                    const TokenDataOptions& options);

/// What `meta.json` beside `token_file` says; nothing if there is none. Throws EnvironmentError if
/// it cannot be understood.
std::optional<TokenMeta> read_token_meta(const std::string& token_file);

/// Whether `folder` holds byte tokens of the text with this sha256, in nanoGPT's layout: the files
/// themselves are read, not only the meta.json.
bool holds_byte_tokens(const std::string& folder, const std::string& sha256);

}  // namespace lockstep::files
