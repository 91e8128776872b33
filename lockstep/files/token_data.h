/// A folder of training data: `train.bin` and `val.bin` (nanoGPT's layout: uint16 tokens, no
/// header), and `meta.json`, which says what the tokens are.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::files {

struct TokenMeta {
  std::string tokenizer;  // "bytes"
  int64_t vocab_size = 0;
  std::string source;  // where the text came from, for people
  std::string sha256;  // of the text: training part, then validation part
};

/// Writes the first floor(0.9 n) bytes of `text` as train.bin and the rest as val.bin, then
/// meta.json: a folder that has it is whole. Makes the folder if need be.
///
/// text    its memory may be a mapped file: tokens are made piece by piece
/// throws  EnvironmentError: text of fewer than 2 bytes, folder cannot be made. StateError: a file
///         cannot be written
void write_byte_tokens(const std::string& folder, std::string_view text, const std::string& source);

/// What `meta.json` beside `token_file` says; nothing if there is none. Throws EnvironmentError if
/// it cannot be understood.
std::optional<TokenMeta> read_token_meta(const std::string& token_file);

/// Whether `folder` holds byte tokens of the text with this sha256: the files themselves are
/// read, not only the meta.json.
bool holds_byte_tokens(const std::string& folder, const std::string& sha256);

}  // namespace lockstep::files
