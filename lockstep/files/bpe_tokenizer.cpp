#include "lockstep/files/bpe_tokenizer.h"

#include <algorithm>
#include <queue>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/files/detail/piece_splitter.h"
#include "lockstep/files/detail/utf8.h"

namespace lockstep::files {
namespace {

constexpr size_t kMostCachedBytes = 64;  // a longer piece will not come again soon
constexpr size_t kMostCached = 1 << 16;

struct ViewHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

/// A token of a piece that is being put together; a list in the order of the text.
struct Part {
  int64_t id;  // -1: joined to the one before
  size_t end;
  size_t next;
  size_t previous;
};

/// Two neighbours that could be joined; out of date once one of them has another id.
struct Pair {
  int32_t rank;
  size_t left;  // place in the text: of equal ranks the leftmost goes first
  int64_t left_id;
  int64_t right_id;

  bool operator>(const Pair& other) const {
    return rank != other.rank ? rank > other.rank : left > other.left;
  }
};

class BpeTokenizer : public Tokenizer {
 public:
  BpeTokenizer(BpeVocabulary vocabulary, const BpeOptions& options);

  using Tokenizer::encode;
  const std::string& name() const override { return name_; }
  int64_t vocab_size() const override { return vocab_size_; }
  std::optional<int64_t> end_of_text() const override {
    return end_of_text_ < 0 ? std::nullopt : std::optional(end_of_text_);
  }
  void encode(std::string_view text, std::vector<int64_t>* ids) override;
  std::optional<std::string_view> token(int64_t id) const override {
    const auto slot = static_cast<size_t>(id);
    if (id < 0 || slot >= vocabulary_.tokens.size() || vocabulary_.tokens[slot].empty()) {
      return std::nullopt;
    }
    return vocabulary_.tokens[slot];
  }

 private:
  int64_t find(std::string_view bytes) const;
  void append_piece(std::string_view piece, std::vector<int64_t>* ids);
  std::vector<int64_t> merged(std::string_view piece) const;

  std::string name_;
  BpeVocabulary vocabulary_;
  int64_t end_of_text_;
  int64_t vocab_size_;
  size_t longest_ = 0;  // bytes of a token
  detail::PieceSplitter splitter_;
  std::unordered_map<std::string_view, int64_t, ViewHash> ids_;  // views of vocabulary_.tokens
  std::unordered_map<std::string, std::vector<int64_t>, ViewHash, std::equal_to<>> cache_;
};

BpeTokenizer::BpeTokenizer(BpeVocabulary vocabulary, const BpeOptions& options)
    : name_(options.name),
      vocabulary_(std::move(vocabulary)),
      end_of_text_(options.end_of_text),
      splitter_(options.pattern) {
  auto& tokens = vocabulary_.tokens;
  ids_.reserve(tokens.size());
  // Before the special ones join: those are never made from text.
  const size_t plain = tokens.size();
  for (const auto& [token, id] : options.special) {
    const auto slot = static_cast<size_t>(id);
    if (id < 0 || (slot < tokens.size() && !tokens[slot].empty())) {
      throw UsageError(base::str("the id ", id, " of \"", token, "\" is taken."));
    }
    tokens.resize(std::max(tokens.size(), slot + 1));
    tokens[slot] = token;
  }
  vocab_size_ = options.vocab_size > 0 ? options.vocab_size : std::ssize(tokens);
  if (vocab_size_ < std::ssize(tokens)) {
    throw UsageError(base::str("the vocabulary \"", name_, "\" has ids up to ", tokens.size() - 1,
                               ", beyond its size ", vocab_size_, "."));
  }
  for (size_t id = 0; id < plain; ++id) {
    const bool special =
        std::any_of(options.special.begin(), options.special.end(),
                    [id](const auto& entry) { return static_cast<size_t>(entry.second) == id; });
    if (tokens[id].empty() || special) continue;
    ids_.emplace(tokens[id], static_cast<int64_t>(id));
    longest_ = std::max(longest_, tokens[id].size());
  }
}

int64_t BpeTokenizer::find(std::string_view bytes) const {
  if (bytes.size() > longest_) return -1;
  const auto found = ids_.find(bytes);
  return found == ids_.end() ? -1 : found->second;
}

void BpeTokenizer::encode(std::string_view text, std::vector<int64_t>* ids) {
  while (!text.empty()) {
    const auto valid = text.substr(0, detail::valid_utf8_bytes(text));
    for (size_t at = 0; at < valid.size();) {
      const size_t end = splitter_.end_of_piece(valid, at);
      append_piece(valid.substr(at, end - at), ids);
      at = end;
    }
    text.remove_prefix(valid.size());
    const auto malformed = text.substr(0, detail::malformed_bytes(text));
    if (!malformed.empty()) append_piece(malformed, ids);
    text.remove_prefix(malformed.size());
  }
}

void BpeTokenizer::append_piece(std::string_view piece, std::vector<int64_t>* ids) {
  if (const int64_t whole = find(piece); whole >= 0) {
    ids->push_back(whole);
    return;
  }
  if (piece.size() > kMostCachedBytes) {
    const auto made = merged(piece);
    ids->insert(ids->end(), made.begin(), made.end());
    return;
  }
  auto cached = cache_.find(piece);
  if (cached == cache_.end()) {
    if (cache_.size() >= kMostCached) cache_.clear();
    cached = cache_.emplace(piece, merged(piece)).first;
  }
  ids->insert(ids->end(), cached->second.begin(), cached->second.end());
}

std::vector<int64_t> BpeTokenizer::merged(std::string_view piece) const {
  std::vector<Part> parts(piece.size());
  std::priority_queue<Pair, std::vector<Pair>, std::greater<>> pairs;
  for (size_t i = 0; i < piece.size(); ++i) {
    parts[i] = {.id = find(piece.substr(i, 1)), .end = i + 1, .next = i + 1, .previous = i - 1};
  }
  const auto offer = [&](size_t left) {
    const size_t right = parts[left].next;
    if (right >= parts.size()) return;
    const int64_t id = find(piece.substr(left, parts[right].end - left));
    if (id < 0) return;
    pairs.push({.rank = vocabulary_.ranks[static_cast<size_t>(id)],
                .left = left,
                .left_id = parts[left].id,
                .right_id = parts[right].id});
  };
  for (size_t i = 0; i + 1 < piece.size(); ++i) offer(i);

  while (!pairs.empty()) {
    const Pair pair = pairs.top();
    pairs.pop();
    Part& left = parts[pair.left];
    if (left.id != pair.left_id || left.next >= parts.size()) continue;
    Part& right = parts[left.next];
    if (right.id != pair.right_id) continue;
    left.id = find(piece.substr(pair.left, right.end - pair.left));
    left.end = right.end;
    left.next = right.next;
    right.id = -1;
    if (left.next < parts.size()) parts[left.next].previous = pair.left;
    offer(pair.left);
    if (pair.left > 0) offer(left.previous);
  }
  std::vector<int64_t> ids;
  for (size_t at = 0; at < parts.size(); at = parts[at].next) ids.push_back(parts[at].id);
  return ids;
}

}  // namespace

std::unique_ptr<Tokenizer> make_bpe_tokenizer(BpeVocabulary vocabulary, const BpeOptions& options) {
  return std::make_unique<BpeTokenizer>(std::move(vocabulary), options);
}

}  // namespace lockstep::files
