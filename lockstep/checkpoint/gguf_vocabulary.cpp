#include "lockstep/checkpoint/gguf_vocabulary.h"

#include <limits>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/files/tokenizer.h"

namespace lockstep::checkpoints {
namespace {

/// llama.cpp's kinds of token.
enum TokenKind : int32_t { kNormal = 1, kControl = 3, kUnused = 5 };

/// GPT-2's alphabet: printable bytes are themselves, the others U+0100 and on, in order.
std::vector<std::string> byte_letters() {
  std::vector<std::string> letters;
  int others = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) ||
                           (byte >= 0xae && byte <= 0xff);
    const int code = printable ? byte : 256 + others++;
    letters.emplace_back(1, static_cast<char>(code));
    if (code >= 0x80) {
      letters.back() = {static_cast<char>(0xc0 | code >> 6),
                        static_cast<char>(0x80 | (code & 0x3f))};
    }
  }
  return letters;
}

std::string in_letters(std::string_view bytes) {
  static const std::vector<std::string> letters = byte_letters();
  std::string made;
  for (const char byte : bytes) made += letters[static_cast<unsigned char>(byte)];
  return made;
}

/// The two parts that a token is joined from: its bytes, joined by all merges before its own.
std::pair<std::string_view, std::string_view> parts_of(
    std::string_view token, int64_t id, const std::unordered_map<std::string_view, int64_t>& ids) {
  std::vector<std::string_view> parts;
  for (size_t i = 0; i < token.size(); ++i) parts.push_back(token.substr(i, 1));
  while (parts.size() > 2) {
    size_t best = 0;
    int64_t best_id = std::numeric_limits<int64_t>::max();
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = ids.find({parts[i].data(), parts[i].size() + parts[i + 1].size()});
      if (found == ids.end() || found->second >= std::min(best_id, id)) continue;
      best = i;
      best_id = found->second;
    }
    LOCKSTEP_ASSERT(best_id < id, "every token of a published vocabulary is made of earlier ones");
    parts[best] = {parts[best].data(), parts[best].size() + parts[best + 1].size()};
    parts.erase(parts.begin() + static_cast<int64_t>(best) + 1);
  }
  return {parts.at(0), parts.at(1)};
}

/// "LEFT RIGHT" of each token of more than a byte, the strongest first: ids are ranks.
std::vector<std::string> merges_of(const files::Tokenizer& tokenizer, int64_t tokens) {
  std::unordered_map<std::string_view, int64_t> ids;
  for (int64_t id = 0; id < tokens; ++id) ids.emplace(tokenizer.token(id).value(), id);
  std::vector<std::string> merges;
  for (int64_t id = 0; id < tokens; ++id) {
    const std::string_view token = tokenizer.token(id).value();
    if (token.size() < 2) continue;
    const auto [left, right] = parts_of(token, id, ids);
    merges.push_back(in_letters(left) + " " + in_letters(right));
  }
  return merges;
}

}  // namespace

files::GgufKeys gguf_vocabulary(const std::string& tokenizer, int64_t vocab,
                                const std::string& folder) {
  const bool bytes = tokenizer == "bytes";
  if (!bytes && tokenizer != "r50k" && tokenizer != "gpt2") {
    throw UsageError(base::str("no GGUF file is written for the tokenizer ", tokenizer,
                               ": llama.cpp would cut text for it in another way. It can be for "
                               "bytes and r50k (gpt2); other models leave as Hugging Face "
                               "folders."));
  }
  const auto opened = files::open_tokenizer(tokenizer, folder);
  if (vocab < opened->vocab_size()) {
    throw UsageError(base::str("the model has ", vocab, " ids, the tokenizer ", tokenizer, " ",
                               opened->vocab_size(), ": they are not of each other."));
  }
  const int64_t special = opened->end_of_text().value_or(-1);
  std::vector<std::string> tokens;
  std::vector<int32_t> kinds;
  for (int64_t id = 0; id < vocab; ++id) {
    const auto token = id < opened->vocab_size() ? opened->token(id) : std::nullopt;
    if (id == special) {
      tokens.emplace_back("<|endoftext|>");
      kinds.push_back(kControl);
    } else if (token) {
      tokens.push_back(in_letters(*token));
      kinds.push_back(kNormal);
    } else {
      tokens.push_back(base::str("<unused_", id, ">"));
      kinds.push_back(kUnused);
    }
  }
  // Bytes have no id for an end, and llama.cpp would take that of byte 11. No text has a zero byte.
  const auto end = static_cast<uint32_t>(bytes ? 0 : special);
  return {
      {"tokenizer.ggml.model", "gpt2"},
      {"tokenizer.ggml.pre", "gpt-2"},
      {"tokenizer.ggml.tokens", std::move(tokens)},
      {"tokenizer.ggml.token_type", std::move(kinds)},
      {"tokenizer.ggml.merges", bytes ? std::vector<std::string>{} : merges_of(*opened, special)},
      {"tokenizer.ggml.bos_token_id", end},
      {"tokenizer.ggml.eos_token_id", end},
      {"tokenizer.ggml.add_bos_token", false}};
}

}  // namespace lockstep::checkpoints
