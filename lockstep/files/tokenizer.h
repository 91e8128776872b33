/// Text to token ids and back, whatever the vocabulary.
///
/// Every tokenizer here gives any bytes back unchanged: decode(encode(text)) == text, also where
/// the text is no valid UTF-8.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::files {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual const std::string& name() const = 0;
  /// Ids are 0 <= id < vocab_size(); not each of them need name a token.
  virtual int64_t vocab_size() const = 0;
  /// The id that stands between documents, where the vocabulary has one.
  virtual std::optional<int64_t> end_of_text() const = 0;

  /// Appends the ids of `text`. Special tokens written out in the text are text like any other.
  /// Not for two threads at once: long words are remembered.
  virtual void encode(std::string_view text, std::vector<int64_t>* ids) = 0;
  std::vector<int64_t> encode(std::string_view text);

  /// The bytes of a token; nothing if `id` names none.
  virtual std::optional<std::string_view> token(int64_t id) const = 0;

  /// Throws UsageError naming the first id that names no token, and its position.
  std::string decode(const std::vector<int64_t>& ids) const;
  /// For reading by people: an id that names no token becomes U+FFFD.
  std::string decode_what_is_known(const std::vector<int64_t>& ids) const;
};

/// Where a whole text may be cut in two so that the parts' ids are the text's: the last such place
/// in `text`, or 0. Holds for every tokenizer of this folder.
///
/// A cut lies between an ASCII letter or digit and white space, or after a line feed that stands
/// alone between two other characters.
size_t last_safe_cut(std::string_view text);

/// Where vocabulary files lie if nobody says otherwise.
inline constexpr const char* kTokenizerFolder = "data/tokenizers";

/// The tokenizer of that name (plan/tokenizers.h), its vocabulary read from `folder`.
///
/// throws  UsageError: no such name (with the nearest). EnvironmentError: the vocabulary is not
///         there (and how to bring it), or is not the published one
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& name,
                                          const std::string& folder = kTokenizerFolder);

}  // namespace lockstep::files
