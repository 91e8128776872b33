#include "lockstep/files/token_data.h"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/files/atomic_file.h"
#include "lockstep/files/byte_tokenizer.h"
#include "lockstep/files/mapped_file.h"
#include "lockstep/files/sha256.h"

namespace lockstep::files {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

constexpr size_t kPieceBytes = 1 * MiB;

void write_bytes_as_tokens(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  std::vector<uint16_t> tokens;
  while (!text.empty()) {
    const auto piece = text.substr(0, kPieceBytes);
    tokens.assign(piece.size(), 0);
    std::transform(piece.begin(), piece.end(), tokens.begin(),
                   [](char c) { return static_cast<unsigned char>(c); });
    file.write(tokens.data(), static_cast<int64_t>(tokens.size() * sizeof(uint16_t)));
    text.remove_prefix(piece.size());
  }
  file.commit();
}

/// Adds the text of a file of byte tokens to `hash`; false if it is no such file.
bool hash_byte_tokens(const std::string& path, Sha256* hash) {
  try {
    const MappedFile file(path);
    if (file.size() % 2 != 0) return false;
    std::string piece;
    for (int64_t i = 0; i < file.size(); i += 2) {
      if (file.data()[i + 1] != 0) return false;  // an id above 255
      piece += static_cast<char>(file.data()[i]);
      if (piece.size() == kPieceBytes) {
        hash->update(piece);
        piece.clear();
      }
    }
    hash->update(piece);
    return true;
  } catch (const std::system_error&) {
    return false;
  }
}

}  // namespace

void write_byte_tokens(const std::string& folder, std::string_view text,
                       const std::string& source) {
  if (text.size() < 2) {
    throw EnvironmentError(base::str("the text from ", source, " has ", text.size(),
                                     " bytes: too few to train on and to validate."));
  }
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw EnvironmentError(base::str("cannot make ", folder, ": ", error.message(), "."));

  const size_t train_bytes = text.size() / 10 * 9 + text.size() % 10 * 9 / 10;  // floor(0.9 n)
  write_bytes_as_tokens(folder + "/train.bin", text.substr(0, train_bytes));
  write_bytes_as_tokens(folder + "/val.bin", text.substr(train_bytes));

  const nlohmann::ordered_json meta = {{"tokenizer", ByteTokenizer::kName},
                                       {"vocab_size", ByteTokenizer::kVocabSize},
                                       {"source", source},
                                       {"sha256", sha256_hex(text)}};
  AtomicFile file(folder + "/meta.json");
  file.write(meta.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  file.commit();
}

std::optional<TokenMeta> read_token_meta(const std::string& token_file) {
  const auto path = std::filesystem::path(token_file).parent_path() / "meta.json";
  try {
    const MappedFile file(path.string());
    const auto json = nlohmann::json::parse(file.text());
    return TokenMeta{.tokenizer = json.at("tokenizer"),
                     .vocab_size = json.at("vocab_size"),
                     .source = json.value("source", ""),
                     .sha256 = json.value("sha256", "")};
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::no_such_file_or_directory) return std::nullopt;
    throw EnvironmentError(
        base::str("cannot read ", path.string(), ": ", error.code().message(), "."));
  } catch (const nlohmann::json::exception& error) {
    throw EnvironmentError(base::str(path.string(), " is not understood (", error.what(),
                                     ").\n  It needs \"tokenizer\" and \"vocab_size\"."));
  }
}

bool holds_byte_tokens(const std::string& folder, const std::string& sha256) {
  try {
    const auto meta = read_token_meta(folder + "/train.bin");
    if (!meta || meta->tokenizer != ByteTokenizer::kName || meta->sha256 != sha256) return false;
  } catch (const EnvironmentError&) {
    return false;
  }
  Sha256 hash;
  return hash_byte_tokens(folder + "/train.bin", &hash) &&
         hash_byte_tokens(folder + "/val.bin", &hash) && hash.hex() == sha256;
}

}  // namespace lockstep::files
