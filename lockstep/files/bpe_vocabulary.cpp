#include "lockstep/files/bpe_vocabulary.h"

#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/files/detail/utf8.h"
#include "lockstep/files/mapped_file.h"

namespace lockstep::files {
namespace {

constexpr int64_t kMostIds = 1 << 24;  // a broken number must not ask for gigabytes

std::string whole_file(const std::string& path) {
  try {
    return std::string(MappedFile(path).text());
  } catch (const std::system_error& error) {
    throw EnvironmentError(
        base::str("cannot read the vocabulary ", path, ": ", error.code().message(), "."));
  }
}

/// Calls visit(line) for each; what it throws as EnvironmentError gets file and line in front.
template <class Visit>
void for_each_line(const std::string& path, Visit visit) {
  const std::string text = whole_file(path);
  std::string_view left = text;
  for (int64_t number = 1; !left.empty(); ++number) {
    const size_t end = left.find('\n');
    auto line = left.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    try {
      visit(line);
    } catch (const EnvironmentError& error) {
      throw EnvironmentError(base::str(path, ": line ", number, " ", error.what(), "."));
    }
    left.remove_prefix(end == std::string_view::npos ? left.size() : end + 1);
  }
}

/// Six bits, or -1.
int base64_value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/// RFC 4648, with padding.
std::string from_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) throw EnvironmentError("is not in base64");
  size_t padding = 0;
  while (padding < 2 && text[text.size() - 1 - padding] == '=') ++padding;
  std::string bytes;
  uint32_t bits = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool pad = i >= text.size() - padding;
    const int value = pad ? 0 : base64_value(text[i]);
    if (value < 0) throw EnvironmentError("is not in base64");
    bits = bits << 6 | static_cast<uint32_t>(value);
    if (i % 4 != 3) continue;
    for (const int shift : {16, 8, 0}) bytes += static_cast<char>(bits >> shift);
    bits = 0;
  }
  bytes.resize(bytes.size() - padding);
  return bytes;
}

/// Gathers tokens and sees to it that none comes twice.
class Builder {
 public:
  void add(std::string token, int64_t id, int64_t rank) {
    if (id < 0 || id >= kMostIds) throw EnvironmentError(base::str("has an impossible id, ", id));
    const auto slot = static_cast<size_t>(id);
    if (slot >= made_.tokens.size()) {
      made_.tokens.resize(slot + 1);
      made_.ranks.resize(slot + 1);
    }
    if (!made_.tokens[slot].empty()) {
      throw EnvironmentError(base::str("gives id ", id, " to a second token"));
    }
    if (!ids_.emplace(token, id).second) throw EnvironmentError("lists a token a second time");
    made_.tokens[slot] = std::move(token);
    made_.ranks[slot] = static_cast<int32_t>(rank);
  }

  bool has(const std::string& token) const { return ids_.contains(token); }

  BpeVocabulary finish(const std::string& path) {
    for (int byte = 0; byte < 256; ++byte) {
      if (has(std::string(1, static_cast<char>(byte)))) continue;
      throw EnvironmentError(base::str(path, ": the byte ", byte,
                                       " is no token, so not every text could be encoded; the "
                                       "file is cut short or no vocabulary."));
    }
    return std::move(made_);
  }

 private:
  BpeVocabulary made_;
  std::unordered_map<std::string, int64_t> ids_;
};

/// GPT-2's alphabet: printable bytes are themselves, the others are U+0100 and on, in order.
class ByteAlphabet {
 public:
  ByteAlphabet() {
    letters_.fill(-1);
    int others = 0;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) ||
                             (byte >= 0xae && byte <= 0xff);
      letters_[static_cast<size_t>(printable ? byte : 256 + others++)] = byte;
    }
  }

  /// Bytes that `letters` write. Throws EnvironmentError with a reason without the file.
  std::string bytes(std::string_view letters) const {
    std::string made;
    while (!letters.empty()) {
      const size_t size = detail::character_bytes(letters);
      if (size == 0 || size > 2) throw EnvironmentError("has a letter that stands for no byte");
      const auto code = size == 1
                            ? static_cast<size_t>(letters[0])
                            : static_cast<size_t>((letters[0] & 0x1f) << 6 | (letters[1] & 0x3f));
      if (code >= letters_.size() || letters_[code] < 0) {
        throw EnvironmentError("has a letter that stands for no byte");
      }
      made += static_cast<char>(letters_[code]);
      letters.remove_prefix(size);
    }
    return made;
  }

 private:
  std::array<int, 324> letters_{};
};

std::unordered_map<std::string, int64_t> read_encoder(const std::string& path) {
  std::unordered_map<std::string, int64_t> ids;
  try {
    const auto json = nlohmann::json::parse(whole_file(path));
    for (const auto& [token, id] : json.items()) ids.emplace(token, id.get<int64_t>());
  } catch (const nlohmann::json::exception& error) {
    throw EnvironmentError(base::str(path, " maps no tokens to numbers: ", error.what(), "."));
  }
  return ids;
}

}  // namespace

BpeVocabulary read_tiktoken(const std::string& path) {
  Builder builder;
  for_each_line(path, [&builder](std::string_view line) {
    const size_t space = line.find(' ');
    if (space == std::string_view::npos) throw EnvironmentError("has no rank after a space");
    const auto number = line.substr(space + 1);
    int64_t rank = -1;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), rank);
    if (error != std::errc() || end != number.data() + number.size()) {
      throw EnvironmentError("has a rank that is no number");
    }
    builder.add(from_base64(line.substr(0, space)), rank, rank);
  });
  return builder.finish(path);
}

BpeVocabulary read_gpt2_vocabulary(const std::string& vocab_bpe, const std::string& encoder_json) {
  const auto ids = read_encoder(encoder_json);
  const ByteAlphabet alphabet;
  Builder builder;
  const auto id_of = [&](const std::string& letters) {
    const auto found = ids.find(letters);
    if (found != ids.end()) return found->second;
    throw EnvironmentError(base::str("names \"", letters, "\", which has no id in ", encoder_json));
  };
  try {
    for (const auto& [letters, id] : ids) {
      if (detail::character_bytes(letters) != letters.size()) continue;
      builder.add(alphabet.bytes(letters), id, -1);  // single bytes: no join makes them
    }
  } catch (const EnvironmentError& error) {
    throw EnvironmentError(base::str(encoder_json, ": an entry ", error.what(), "."));
  }
  int32_t rank = 0;
  bool first = true;
  for_each_line(vocab_bpe, [&](std::string_view line) {
    if (std::exchange(first, false) && line.starts_with("#version")) return;
    const size_t space = line.find(' ');
    if (space == std::string_view::npos) throw EnvironmentError("is no merge of two parts");
    const auto left = line.substr(0, space);
    const auto right = line.substr(space + 1);
    for (const auto part : {left, right}) {
      if (!builder.has(alphabet.bytes(part))) {
        throw EnvironmentError(base::str("joins \"", part, "\", which no line before it makes"));
      }
    }
    const std::string joined = std::string(left) + std::string(right);
    builder.add(alphabet.bytes(joined), id_of(joined), rank++);
  });
  return builder.finish(vocab_bpe);
}

}  // namespace lockstep::files
