/// Byte-pair encoding as GPT-2 and its successors use it.
///
/// A text is cut into pieces by a regular expression. A piece that is a token is taken whole. In
/// any other, neighbours are joined: always the pair whose join has the lowest rank, the leftmost
/// of equals, until no pair of neighbours is a token.
///
/// Bytes that are no UTF-8: each run of them, up to the next well-formed character, is a piece.
///
/// Costs   n log n in the bytes n of a piece, so a megabyte without a space is no trap
/// Source  Sennrich, Haddow and Birch 2016, ACL; Radford et al. 2019 (bytes in place of letters);
///         docs/concepts/tokenizers.md
#pragma once

#include <string>
#include <unordered_map>
#include <utility>

#include "lockstep/files/bpe_vocabulary.h"
#include "lockstep/files/tokenizer.h"

namespace lockstep::files {

struct BpeOptions {
  std::string name;
  const char* pattern = nullptr;  // of detail/piece_splitter.h
  /// Beside the vocabulary's own; they are decoded, never made from text.
  std::vector<std::pair<std::string, int64_t>> special = {};
  int64_t end_of_text = -1;  // -1: none
  int64_t vocab_size = 0;    // 0: up to the last id
};

/// Throws UsageError if a special id is taken, or lies beyond vocab_size.
std::unique_ptr<Tokenizer> make_bpe_tokenizer(BpeVocabulary vocabulary, const BpeOptions& options);

}  // namespace lockstep::files
