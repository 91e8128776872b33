#include "lockstep/files/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <sstream>
#include <tuple>

#include "lockstep/base/counter_random.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/files/austen.h"
#include "lockstep/files/bpe_tokenizer.h"
#include "lockstep/files/byte_tokenizer.h"
#include "lockstep/files/detail/piece_splitter.h"
#include "lockstep/files/detail/utf8.h"
#include "lockstep/files/mapped_file.h"
#include "lockstep/files/sha256.h"
#include "lockstep/files/temp_folder.h"
#include "lockstep/files/tokenizer_files.h"
#include "lockstep/plan/tokenizers.h"
#include "tests/files/on_disk.h"

namespace lockstep::files {
namespace {

using namespace std::string_literals;
using on_disk::message_of;

using Ids = std::vector<int64_t>;

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "\"" << part << "\" in: " << text;
}

/// The bytes 0 to 255, then `more` with ids (and ranks) from 256 on.
BpeVocabulary tiny(const std::vector<std::string>& more) {
  BpeVocabulary made;
  for (int byte = 0; byte < 256; ++byte) made.tokens.emplace_back(1, static_cast<char>(byte));
  made.tokens.insert(made.tokens.end(), more.begin(), more.end());
  for (size_t id = 0; id < made.tokens.size(); ++id) made.ranks.push_back(static_cast<int32_t>(id));
  return made;
}

std::unique_ptr<Tokenizer> tiny_tokenizer(const std::vector<std::string>& more) {
  return make_bpe_tokenizer(tiny(more), {.name = "tiny", .pattern = detail::kGpt2Pattern});
}

/// The rule as it is written: look at all pairs, join the lowest, begin again. Time squared.
Ids merged_naively(const BpeVocabulary& vocabulary, const std::string& piece) {
  std::vector<std::string> parts;
  for (const char c : piece) parts.emplace_back(1, c);
  const auto id_of = [&](const std::string& token) {
    const auto found = std::find(vocabulary.tokens.begin(), vocabulary.tokens.end(), token);
    return found == vocabulary.tokens.end() ? -1 : found - vocabulary.tokens.begin();
  };
  if (id_of(piece) >= 0) return {id_of(piece)};
  while (true) {
    int64_t best = -1;
    size_t at = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const int64_t id = id_of(parts[i] + parts[i + 1]);
      if (id >= 0 && (best < 0 || id < best)) {
        best = id;
        at = i;
      }
    }
    if (best < 0) break;
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  Ids ids;
  for (const auto& part : parts) ids.push_back(id_of(part));
  return ids;
}

std::string random_text(const base::RandomKey& key, const std::vector<std::string>& alphabet,
                        uint64_t length) {
  std::string text;
  for (uint64_t i = 0; i < length; ++i) text += alphabet[key.below(i, alphabet.size())];
  return text;
}

std::vector<std::string> pieces(const detail::PieceSplitter& splitter, std::string_view text) {
  std::vector<std::string> made;
  for (size_t at = 0; at < text.size();) {
    const size_t end = splitter.end_of_piece(text, at);
    made.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return made;
}

TEST(ByteTokenizer, EveryByteComesBack) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  ByteTokenizer bytes;
  const auto ids = bytes.encode(all);
  for (int64_t byte = 0; byte < 256; ++byte) EXPECT_EQ(ids[static_cast<size_t>(byte)], byte);
  EXPECT_EQ(bytes.decode(ids), all);
  EXPECT_EQ(bytes.decode({}), "");
  expect_contains(message_of<UsageError>([&] { bytes.decode({65, 256}); }), "position 1");
  EXPECT_NE(message_of<UsageError>([&] { bytes.decode({-1}); }), "");
  EXPECT_EQ(bytes.decode_what_is_known({65, 256, 66}),
            "A\xef\xbf\xbd"
            "B");
}

TEST(Bpe, TheLowestRankIsJoinedFirstAndTheLeftmostOfEquals) {
  const auto tokenizer = tiny_tokenizer({"bc", "ab", "aa", "aab"});
  EXPECT_EQ(tokenizer->encode("abcd"), (Ids{'a', 256, 'd'})) << "bc before ab";
  EXPECT_EQ(tokenizer->encode("aaad"), (Ids{258, 'a', 'd'})) << "the left two of three";
  EXPECT_EQ(tokenizer->encode("aabd"), (Ids{259, 'd'})) << "ab before aa, then a with ab";
  EXPECT_EQ(tokenizer->encode("aab"), (Ids{259})) << "a piece that is a token is taken whole";
  EXPECT_EQ(tokenizer->encode("aab aab"), (Ids{259, ' ', 259}));
  EXPECT_EQ(tokenizer->encode(""), Ids{});
  EXPECT_EQ(tokenizer->vocab_size(), 260);
  EXPECT_EQ(tokenizer->end_of_text(), std::nullopt);
}

TEST(Bpe, TheHeapFollowsTheRuleAsItIsWritten) {
  const std::vector<std::string> joins = {"ab", "ba",   "aa",  "bb",    "aba",  "abab", "cab",
                                          "ca", "aaaa", "bab", "ababa", "abba", "bc",   "cc"};
  for (uint64_t trial = 0; trial < 200; ++trial) {
    const auto key = base::RandomKey(trial).with("bpe");
    std::vector<std::string> shuffled = joins;
    for (size_t i = shuffled.size(); i > 1; --i) {
      std::swap(shuffled[i - 1], shuffled[key.below(1000 + i, i)]);
    }
    const std::string text = random_text(key, {"a", "b", "c"}, 1 + trial);
    EXPECT_EQ(tiny_tokenizer(shuffled)->encode(text), merged_naively(tiny(shuffled), text)) << text;
  }
}

TEST(Bpe, AMegabyteWithoutASpaceTakesNoTimeSquared) {
  std::vector<std::string> powers;
  for (int length = 2; length <= 64; length *= 2) powers.emplace_back(length, 'x');
  const auto tokenizer = tiny_tokenizer(powers);
  const std::string text(1'000'001, 'x');
  const auto ids = tokenizer->encode(text);
  EXPECT_EQ(ids.size(), 1'000'000u / 64 + 1);
  EXPECT_EQ(tokenizer->decode(ids), text);
  const std::string spaces(1'000'000, ' ');
  for (const char* pattern :
       {detail::kGpt2Pattern, detail::kCl100kPattern, detail::kO200kPattern}) {
    const detail::PieceSplitter splitter(pattern);
    EXPECT_EQ(splitter.end_of_piece(spaces + "x", 0), 999'999u) << pattern;
    EXPECT_EQ(splitter.end_of_piece(text, 0), text.size()) << pattern;
    EXPECT_EQ(splitter.end_of_piece(std::string(1'000'000, 'X'), 0), 1'000'000u) << pattern;
  }
}

TEST(Bpe, MalformedBytesAreAPieceAndComeBack) {
  const auto tokenizer = tiny_tokenizer({"\xff\xff", "a\xff",
                                         "\xff"
                                         "b",
                                         "\xc3\xbc"});
  EXPECT_EQ(tokenizer->encode("a\xff\xff"
                              "b"),
            (Ids{'a', 256, 'b'}))
      << "nothing is joined across the edge of a run";
  EXPECT_EQ(tokenizer->encode("\xc3\xbc\xc3"), (Ids{259, 0xc3})) << "cut short";
  for (uint64_t trial = 0; trial < 50; ++trial) {
    const auto key = base::RandomKey(trial).with("bytes");
    std::string bytes;
    for (uint64_t i = 0; i < 300; ++i) bytes += static_cast<char>(key.below(i, 256));
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(bytes)), bytes);
  }
}

TEST(Bpe, SpecialTokensAreDecodedAndNeverMade) {
  const auto tokenizer = make_bpe_tokenizer(tiny({"<|"}), {.name = "tiny",
                                                           .pattern = detail::kGpt2Pattern,
                                                           .special = {{"<|end|>", 300}},
                                                           .end_of_text = 300,
                                                           .vocab_size = 301});
  EXPECT_EQ(tokenizer->end_of_text(), 300);
  EXPECT_EQ(tokenizer->decode({'a', 300}), "a<|end|>");
  EXPECT_EQ(tokenizer->encode("<|end|>"), (Ids{256, 'e', 'n', 'd', '|', '>'}));
  expect_contains(message_of<UsageError>([&] {
                    tokenizer->decode({'a', 299});
                  }),
                  "id 299 at position 1");
  for (const int64_t taken : {65, 256, -1}) {
    EXPECT_NE(message_of<UsageError>([&] {
                make_bpe_tokenizer(tiny({"x"}), {.name = "tiny",
                                                 .pattern = detail::kGpt2Pattern,
                                                 .special = {{"<|end|>", taken}}});
              }),
              "");
  }
}

TEST(Pieces, AreThoseOfThePatterns) {
  using Strings = std::vector<std::string>;
  const detail::PieceSplitter gpt2(detail::kGpt2Pattern);
  const detail::PieceSplitter cl100k(detail::kCl100kPattern);
  const detail::PieceSplitter o200k(detail::kO200kPattern);
  EXPECT_EQ(pieces(gpt2, "It's 12345  \n\nü!?"),
            (Strings{"It", "'s", " 12345", "  \n", "\n", "ü", "!?"}));
  EXPECT_EQ(pieces(cl100k, "It'S 12345  \n\nü!?\n"),
            (Strings{"It", "'S", " ", "123", "45", "  \n\n", "ü", "!?\n"}));
  EXPECT_EQ(pieces(o200k, "helloWorld's DON'T/\n/"),
            (Strings{"hello", "World's", " DON'T", "/\n/"}));
  EXPECT_EQ(pieces(cl100k, "a\n  "), (Strings{"a", "\n  "})) << "white space at the end is one";
}

/// The property that reading a text in parts stands on.
TEST(SafeCut, PartsHaveThePiecesOfTheWhole) {
  const std::vector<std::string> alphabet = {
      "a", "Z", "7",      " ",      "\n",     "\n",     "\r",     "\t",    "'s",
      "!", "/", "\u00fc", "\u4e2d", "\u3000", "\u3002", "\u00a0", "\u0301"};
  int cuts = 0;
  for (const char* pattern :
       {detail::kGpt2Pattern, detail::kCl100kPattern, detail::kO200kPattern}) {
    const detail::PieceSplitter splitter(pattern);
    for (uint64_t trial = 0; trial < 3000; ++trial) {
      const std::string text = random_text(base::RandomKey(trial).with("cut"), alphabet, 14);
      const size_t cut = last_safe_cut(text);
      if (cut == 0) continue;
      ++cuts;
      auto parts = pieces(splitter, std::string_view(text).substr(0, cut));
      const auto second = pieces(splitter, std::string_view(text).substr(cut));
      parts.insert(parts.end(), second.begin(), second.end());
      EXPECT_EQ(parts, pieces(splitter, text)) << cut << " in " << testing::PrintToString(text);
    }
  }
  EXPECT_GT(cuts, 3000);
  EXPECT_EQ(last_safe_cut("ab cd"), 2u);
  EXPECT_EQ(last_safe_cut("\u3002\n\u4e2d"), 4u) << "a line of Chinese";
  for (const char* none : {"", "a", " a", "\n\nb", "!\n/", "\u3000\na", "!\n\u3000"}) {
    EXPECT_EQ(last_safe_cut(none), 0u) << none;
  }
}

TEST(Utf8, IsReadStrictly) {
  using detail::character_bytes;
  for (const char* well : {"a", "\u00fc", "\u4e2d", "\U0001f30d", "\U0010ffff", "\ud7ff"}) {
    EXPECT_EQ(character_bytes(well), std::string(well).size()) << well;
  }
  for (const char* bad : {"\x80", "\xc0\x80", "\xc1\xbf", "\xc3", "\xe0\x80\x80", "\xed\xa0\x80",
                          "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xe4\xb8"}) {
    EXPECT_EQ(character_bytes(bad), 0u) << testing::PrintToString(bad);
  }
  EXPECT_EQ(detail::valid_utf8_bytes("12345678\u00fc9\xff"), 11u);
  EXPECT_EQ(detail::malformed_bytes("\xff\xfe\u00fc"), 2u);
}

class VocabularyTest : public ::testing::Test {
 protected:
  std::string bytes_as_tiktoken() const {
    static constexpr char kLetters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    for (int byte = 0; byte < 256; ++byte) {
      text += base::str(kLetters[byte >> 2], kLetters[(byte & 3) << 4], "== ", byte, "\n");
    }
    return text;
  }
  std::string refusal(const std::string& text) const {
    on_disk::put(path_, text);
    return message_of<EnvironmentError>([this] { read_tiktoken(path_); });
  }

  TempFolder folder_{"vocabulary-test"};
  std::string path_ = folder_.file("x.tiktoken");
};

TEST_F(VocabularyTest, ReadsALineAToken) {
  on_disk::put(path_, bytes_as_tiktoken() + "YWI= 256\r\nYWJj 258");
  const auto vocabulary = read_tiktoken(path_);
  EXPECT_EQ(vocabulary.tokens.size(), 259u);
  EXPECT_EQ(vocabulary.tokens[0xff], "\xff");
  EXPECT_EQ(vocabulary.tokens[256], "ab");
  EXPECT_EQ(vocabulary.tokens[257], "") << "p50k has such a gap";
  EXPECT_EQ(vocabulary.tokens[258], "abc");
}

TEST_F(VocabularyTest, ADamagedLineIsNamed) {
  const std::string good = bytes_as_tiktoken();
  const std::vector<std::pair<std::string, std::string>> damaged = {
      {"YWI=", "no rank"},        {"YWI 256", "base64"},       {"Y!I= 256", "base64"},
      {"YW=I 256", "base64"},     {" 256", "base64"},          {"YWI= x", "no number"},
      {"YWI= 12x", "no number"},  {"YWI= -1", "impossible"},   {"YWI= 99999999", "impossible"},
      {"YWI= 7", "second token"}, {"YQ== 256", "second time"}, {"", "no rank"},
  };
  for (const auto& [line, reason] : damaged) {
    const std::string message = refusal(good + line + "\nYWJj 300\n");
    expect_contains(message, path_ + ": line 257 ");
    expect_contains(message, reason);
  }
  expect_contains(refusal(good.substr(0, good.find('\n', 1000))), "cut short");
  expect_contains(refusal(""), "the byte 0 is no token");
  expect_contains(message_of<EnvironmentError>([this] { read_tiktoken(folder_.file("none")); }),
                  "No such file");
}

TEST_F(VocabularyTest, ReadsGpt2sPairAndNamesTheDamagedLine) {
  std::string encoder = "{";
  int others = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    char letter[16];
    std::snprintf(letter, sizeof letter, "\"\\u%04x\":", printable ? byte : 256 + others++);
    encoder += base::str(letter, 255 - byte, ",");
  }
  const std::string json = folder_.file("encoder.json");
  const std::string bpe = folder_.file("vocab.bpe");
  on_disk::put(json, encoder + "\"\\u0120t\":256,\"\\u0120th\":257,\"<|end|>\":258}");
  on_disk::put(bpe, "#version: 0.2\n\u0120 t\n\u0120t h\n");
  const auto vocabulary = read_gpt2_vocabulary(bpe, json);
  EXPECT_EQ(vocabulary.tokens[255 - 'a'], "a");
  EXPECT_EQ(vocabulary.tokens[257], " th");
  const auto tokenizer =
      make_bpe_tokenizer(vocabulary, {.name = "pair", .pattern = detail::kGpt2Pattern});
  EXPECT_EQ(tokenizer->encode("a the"), (Ids{255 - 'a', 257, 255 - 'e'}));
  for (const auto& [line, reason] :
       std::vector<std::pair<std::string, std::string>>{{"\u0120", "no merge"},
                                                        {"xy z", "no line before"},
                                                        {"x y", "no id"},
                                                        {"x \u4e2d", "no byte"}}) {
    on_disk::put(bpe, "#version: 0.2\n\u0120 t\n" + line + "\n");
    const std::string message =
        message_of<EnvironmentError>([&] { read_gpt2_vocabulary(bpe, json); });
    expect_contains(message, bpe + ": line 3 ");
    expect_contains(message, reason);
  }
  on_disk::put(json, "{\"a\": \"b\"}");
  expect_contains(message_of<EnvironmentError>([&] { read_gpt2_vocabulary(bpe, json); }), json);
}

TEST_F(VocabularyTest, WhatIsNotThereOrNotPublishedSaysHowToBringIt) {
  const auto open = [this](const std::string& name) {
    return message_of<EnvironmentError>([&] { open_tokenizer(name, folder_.path()); });
  };
  for (const char* name : {"r50k", "gpt2", "p50k", "cl100k", "o200k"}) {
    expect_contains(open(name), folder_.path() + "/");
    expect_contains(open(name), "lockstep data prepare tokenizers");
  }
  on_disk::put(folder_.file("cl100k_base.tiktoken"), bytes_as_tiktoken());
  expect_contains(open("cl100k"), "not the published vocabulary: sha256 ");
  EXPECT_EQ(open("bytes"), "");
  expect_contains(message_of<UsageError>([&] { open_tokenizer("cl100"); }), "Did you mean cl100k?");
  EXPECT_EQ(missing_vocabulary_files(folder_.path()).size(), vocabulary_files().size());
  on_disk::put(folder_.file("vocab.bpe"), "x");
  expect_contains(message_of<EnvironmentError>(
                      [&] { prepare_tokenizers(folder_.file("out"), folder_.path()); }),
                  "gpt-tokenizer-4.0.0.tgz");
}

// ---- with the published files, where they have been brought

const std::filesystem::path kData =
    std::filesystem::path(__FILE__).parent_path().parent_path().parent_path() / "data";
const std::string kFiles = (kData / "tokenizers").string();

class Published : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto missing = missing_vocabulary_files(kFiles);
    if (missing.empty()) return;
    GTEST_SKIP() << "no " << kFiles << "/" << missing.front()
                 << ": `lockstep data prepare tokenizers` brings it where there is a network";
  }
};

struct Case {
  std::string encoding;
  std::string sample;
  Ids ids;
};

std::vector<Case> test_plans() {
  std::istringstream lines(on_disk::get(base::str(kFiles, "/TestPlans.txt")));
  std::vector<Case> cases;
  for (std::string line; std::getline(lines, line);) {
    const auto rest = [&line](const std::string& mark) { return line.substr(mark.size()); };
    if (line.starts_with("EncodingName: ")) {
      cases.push_back({.encoding = rest("EncodingName: "), .sample = {}, .ids = {}});
    } else if (line.starts_with("Sample: ")) {
      cases.back().sample = rest("Sample: ");
    } else if (line.starts_with("Encoded: [")) {
      std::istringstream numbers(rest("Encoded: ["));
      for (int64_t id = 0; numbers >> id; numbers.ignore()) cases.back().ids.push_back(id);
    }
  }
  return cases;
}

TEST_F(Published, All313EncodingCasesAreReproduced) {
  std::map<std::string, std::unique_ptr<Tokenizer>> tokenizers;
  const auto cases = test_plans();
  EXPECT_EQ(cases.size(), 313u);
  for (const Case& one : cases) {
    // p50k_edit differs from p50k in special tokens only.
    const std::string name = one.encoding.substr(0, one.encoding.find('_'));
    auto& tokenizer = tokenizers[name];
    if (!tokenizer) tokenizer = open_tokenizer(name, kFiles);
    EXPECT_EQ(tokenizer->encode(one.sample), one.ids) << one.encoding << ": " << one.sample;
    EXPECT_EQ(tokenizer->decode(one.ids), one.sample);
  }
  EXPECT_EQ(tokenizers.size(), 4u);
  for (const auto& [name, tokenizer] : tokenizers) {
    EXPECT_EQ(tokenizer->vocab_size(), plan::tokenizer_vocab_size(name));
    EXPECT_EQ(tokenizer->decode({*tokenizer->end_of_text()}), "<|endoftext|>");
  }
}

TEST_F(Published, SmallChecks) {
  const auto r50k = open_tokenizer("r50k", kFiles);
  EXPECT_EQ(r50k->encode("hello"), Ids{31373});
  EXPECT_EQ(r50k->encode("a a"), (Ids{64, 257}));
  EXPECT_EQ(r50k->encode("1"), Ids{16});
}

TEST_F(Published, Gpt2sPairIsTheSameVocabulary) {
  const TempFolder folder("pair-test");
  for (const char* name : {"vocab.bpe", "encoder.json"}) {
    std::filesystem::copy(base::str(kFiles, "/", name), folder.file(name));
  }
  const auto pair = open_tokenizer("gpt2", folder.path());
  const auto lines = open_tokenizer("r50k", kFiles);
  for (int64_t id = 0; id < 50'257; ++id) ASSERT_EQ(pair->token(id), lines->token(id)) << id;
  for (const Case& one : test_plans()) {
    EXPECT_EQ(pair->encode(one.sample), lines->encode(one.sample)) << one.sample;
  }
}

TEST_F(Published, SixNovelsHaveTheIdsThatOthersFound) {
  std::string text;
  for (const char* part : {"train", "val"}) {
    const std::string tokens =
        on_disk::get((kData / "austen" / (std::string(part) + ".bin")).string());
    for (size_t i = 0; i < tokens.size(); i += 2) text += tokens[i];
  }
  if (sha256_hex(text) != kAustenSha256) GTEST_SKIP() << "no data/austen of bytes";
  const std::vector<std::tuple<const char*, size_t, uint64_t>> known = {
      {"r50k", 993'328, 0x376aae1047bdabe3}, {"cl100k", 958'652, 0xc5c779dd2eb36633}};
  for (const auto& [name, count, expected] : known) {
    const auto tokenizer = open_tokenizer(name, kFiles);
    const auto ids = tokenizer->encode(text);
    EXPECT_EQ(ids.size(), count) << name;
    uint64_t hash = 1469598103934665603ull;
    for (const int64_t id : ids) hash = (hash ^ static_cast<uint64_t>(id)) * 1099511628211ull;
    EXPECT_EQ(hash, expected) << name;
    EXPECT_EQ(tokenizer->decode(ids), text) << name;
  }
}

}  // namespace
}  // namespace lockstep::files
