/// Cuts a text into the pieces that byte-pair merges stay inside, by a regular expression.
///
/// The expressions need look-ahead and Unicode's classes, which std::regex has not: PCRE2 with its
/// compiler to machine code runs them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace lockstep::files::detail {

/// r50k and p50k; cl100k; o200k.
extern const char* const kGpt2Pattern;
extern const char* const kCl100kPattern;
extern const char* const kO200kPattern;

class PieceSplitter {
 public:
  /// `pattern` matches at least one character at any place of any text.
  explicit PieceSplitter(const char* pattern);
  ~PieceSplitter();

  /// Where the piece that begins at `at` ends. `text` is valid UTF-8: that is the caller's to
  /// check, once, since a check at each piece would take time squared in the text's length.
  size_t end_of_piece(std::string_view text, size_t at) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::files::detail
