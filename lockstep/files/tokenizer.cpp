#include "lockstep/files/tokenizer.h"

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/files/detail/utf8.h"

namespace lockstep::files {
namespace {

bool is_ascii_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/// A line feed at `at` - 1 that stands alone: no white space on either side to be one piece with.
bool after_lone_line_feed(std::string_view text, size_t at) {
  if (at < 2 || text[at - 1] != '\n') return false;
  const auto before = detail::last_character(text.substr(0, at - 1));
  const auto after = text.substr(at);
  // In one pattern a slash goes on with the punctuation before the line feed.
  return !before.empty() && !detail::begins_with_space(before) && after[0] != '/' &&
         detail::character_bytes(after) > 0 && !detail::begins_with_space(after);
}

}  // namespace

size_t last_safe_cut(std::string_view text) {
  for (size_t at = text.size(); at-- > 1;) {
    const bool word_ends = is_ascii_word(text[at - 1]) && (text[at] == ' ' || text[at] == '\n');
    if (word_ends || after_lone_line_feed(text, at)) return at;
  }
  return 0;
}

std::vector<int64_t> Tokenizer::encode(std::string_view text) {
  std::vector<int64_t> ids;
  encode(text, &ids);
  return ids;
}

std::string Tokenizer::decode(const std::vector<int64_t>& ids) const {
  std::string text;
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto bytes = token(ids[i]);
    if (!bytes) {
      throw UsageError(base::str("id ", ids[i], " at position ", i, " names no token: \"", name(),
                                 "\" has ids 0 to ", vocab_size() - 1,
                                 name() == "bytes" ? "." : ", some of them unused."));
    }
    text += *bytes;
  }
  return text;
}

std::string Tokenizer::decode_what_is_known(const std::vector<int64_t>& ids) const {
  std::string text;
  for (const int64_t id : ids) text += token(id).value_or("\xef\xbf\xbd");
  return text;
}

}  // namespace lockstep::files
