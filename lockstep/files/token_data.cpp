#include "lockstep/files/token_data.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/shallow_json.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/files/atomic_file.h"
#include "lockstep/files/byte_tokenizer.h"
#include "lockstep/files/mapped_file.h"
#include "lockstep/files/other_formats.h"
#include "lockstep/files/sha256.h"
#include "lockstep/files/token_writer.h"

namespace lockstep::files {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

constexpr size_t kPieceBytes = 4 * MiB;

/// Both parts of a folder while they are being made.
class FolderWriter {
 public:
  FolderWriter(Tokenizer& tokenizer, const TokenDataOptions& options, int64_t all_bytes)
      : tokenizer_(tokenizer), options_(options), all_bytes_(all_bytes) {
    std::error_code error;
    std::filesystem::create_directories(options.folder, error);
    if (error) {
      throw EnvironmentError(base::str("cannot make ", options.folder, ": ", error.message(), "."));
    }
    type_ = token_type_for(options.format, tokenizer.vocab_size());
    for (const bool valid : {false, true}) {
      writers_[valid] = make_token_writer(path(valid), options.format, type_);
    }
  }

  /// Text of the training or the validation part, in pieces that have the tokens of the whole.
  void add(std::string_view text, bool valid) {
    sha256_.update(text);
    for (size_t most = kPieceBytes; !text.empty();) {
      size_t cut = text.size();
      if (text.size() > most) {
        cut = last_safe_cut(text.substr(0, most));
        if (cut == 0) {  // rare: megabytes without a plain line end
          most *= 2;
          continue;
        }
      }
      ids_.clear();
      tokenizer_.encode(text.substr(0, cut), &ids_);
      writers_[valid]->write(ids_);
      text.remove_prefix(cut);
      most = kPieceBytes;
      tell(static_cast<int64_t>(cut));
    }
  }

  void end_document(bool valid, bool separate) {
    if (separate && tokenizer_.end_of_text()) writers_[valid]->write({*tokenizer_.end_of_text()});
    writers_[valid]->end_document();
    ++documents_;
  }

  /// A document whose text goes to both parts counts once.
  void cut_document() { writers_[false]->end_document(); }

  TokenDataCounts finish() {
    const TokenDataCounts counts{writers_[false]->tokens(), writers_[true]->tokens(), documents_};
    if (counts.train_tokens == 0 || counts.valid_tokens == 0) {
      throw EnvironmentError(base::str(
          "the text from ", options_.source, " makes ", counts.train_tokens,
          " tokens to train on and ", counts.valid_tokens, " to validate with: too few for both."));
    }
    std::error_code error;
    std::filesystem::remove(meta_path(), error);  // until all is there, the folder is not whole
    for (const bool valid : {false, true}) {
      if (options_.format != TokenFormat::megatron) {
        std::filesystem::remove(megatron_index_path(path(valid)), error);
      }
      writers_[valid]->commit();
    }
    write_meta(counts);
    return counts;
  }

 private:
  std::string path(bool valid) const {
    return options_.folder + (valid ? "/val.bin" : "/train.bin");
  }
  std::string meta_path() const { return options_.folder + "/meta.json"; }

  void tell(int64_t bytes) {
    done_bytes_ += bytes;
    if (options_.progress) {
      options_.progress(done_bytes_, all_bytes_, writers_[0]->tokens() + writers_[1]->tokens());
    }
  }

  void write_meta(const TokenDataCounts& counts) {
    const nlohmann::ordered_json meta = {{"tokenizer", tokenizer_.name()},
                                         {"vocab_size", tokenizer_.vocab_size()},
                                         {"format", name_of(options_.format)},
                                         {"dtype", name_of(type_)},
                                         {"train_tokens", counts.train_tokens},
                                         {"valid_tokens", counts.valid_tokens},
                                         {"documents", counts.documents},
                                         {"source", options_.source},
                                         {"sha256", sha256_.hex()}};
    AtomicFile file(meta_path());
    file.write(meta.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    file.commit();
  }

  Tokenizer& tokenizer_;
  const TokenDataOptions& options_;
  int64_t all_bytes_;
  TokenType type_ = TokenType::u16;
  std::unique_ptr<TokenWriter> writers_[2];  // training, validation
  Sha256 sha256_;
  std::vector<int64_t> ids_;
  int64_t documents_ = 0;
  int64_t done_bytes_ = 0;
};

int64_t train_bytes(int64_t bytes, double valid_fraction) {
  return static_cast<int64_t>(std::floor(static_cast<double>(bytes) * (1 - valid_fraction)));
}

/// A text whose byte `cut` begins the validation part; not within a character, unless bytes are
/// the characters.
void add_text(FolderWriter& writer, std::string_view text, int64_t cut, bool characters,
              bool separate) {
  const auto size = static_cast<int64_t>(text.size());
  cut = std::clamp<int64_t>(cut, 0, size);
  const auto continues = [&](int64_t at) {
    return (static_cast<unsigned char>(text[static_cast<size_t>(at)]) & 0xc0) == 0x80;
  };
  for (int back = 0; characters && back < 3 && cut > 0 && cut < size && continues(cut); ++back) {
    --cut;
  }
  writer.add(text.substr(0, static_cast<size_t>(cut)), false);
  if (cut > 0 && cut < size) writer.cut_document();
  writer.add(text.substr(static_cast<size_t>(cut)), true);
  writer.end_document(cut < size, separate);
}

/// Each line a document; the part is that of the line's first byte.
void add_lines(FolderWriter& writer, const MappedFile& file, int64_t cut) {
  std::string_view left = file.text();
  int64_t at = 0;
  for (int64_t number = 1; !left.empty(); ++number) {
    const auto line = left.substr(0, left.find('\n'));
    const size_t step = std::min(line.size() + 1, left.size());
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) {
      try {
        const auto json = nlohmann::json::parse(line);
        writer.add(json.at("text").get_ref<const std::string&>(), at >= cut);
      } catch (const nlohmann::json::exception& error) {
        throw EnvironmentError(base::str(file.path(), ": line ", number,
                                         " is no JSON object with a \"text\": ", error.what(),
                                         "."));
      }
      writer.end_document(at >= cut, /*separate=*/true);
    }
    left.remove_prefix(step);
    at += static_cast<int64_t>(step);
  }
}

std::vector<std::string> text_files(const std::string& path) {
  if (!std::filesystem::is_directory(path)) return {path};
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    const auto kind = entry.path().extension();
    if (entry.is_regular_file() && (kind == ".txt" || kind == ".jsonl")) {
      files.push_back(entry.path().string());
    }
  }
  if (files.empty()) throw EnvironmentError("there is no .txt or .jsonl file below " + path + ".");
  std::sort(files.begin(), files.end());
  return files;
}

void require_text(const MappedFile& file) {
  const std::string other = other_format(file.text());
  if (other.empty() || other.starts_with("a text file")) return;
  throw EnvironmentError(base::str(file.path(), " is ", other, ", no text."));
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

TokenDataCounts write_token_data(std::string_view text, Tokenizer& tokenizer,
                                 const TokenDataOptions& options) {
  const auto size = static_cast<int64_t>(text.size());
  FolderWriter writer(tokenizer, options, size);
  add_text(writer, text, train_bytes(size, options.valid_fraction),
           tokenizer.name() != ByteTokenizer::kName, /*separate=*/false);
  return writer.finish();
}

TokenDataCounts write_token_data_of(const std::string& path, Tokenizer& tokenizer,
                                    const TokenDataOptions& options) {
  try {
    const bool folder = std::filesystem::is_directory(path);
    const auto paths = text_files(path);
    int64_t all_bytes = 0;
    for (const auto& name : paths) all_bytes += MappedFile(name).size();
    const int64_t cut = train_bytes(all_bytes, options.valid_fraction);
    FolderWriter writer(tokenizer, options, all_bytes);
    int64_t before = 0;
    for (const auto& name : paths) {
      const MappedFile file(name);
      require_text(file);
      if (name.ends_with(".jsonl")) {
        add_lines(writer, file, cut - before);
      } else {
        add_text(writer, file.text(), cut - before, tokenizer.name() != ByteTokenizer::kName,
                 folder);
      }
      before += file.size();
    }
    return writer.finish();
  } catch (const std::system_error& error) {
    throw EnvironmentError(base::str("cannot read ", path, ": ", error.code().message(), "."));
  }
}

std::optional<TokenMeta> read_token_meta(const std::string& token_file) {
  const auto path = std::filesystem::path(token_file).parent_path() / "meta.json";
  try {
    const MappedFile file(path.string());
    const auto json = nlohmann::json::parse(base::shallow_json(file.text()));
    return TokenMeta{.tokenizer = json.at("tokenizer"),
                     .vocab_size = json.at("vocab_size"),
                     .dtype = json.value("dtype", "uint16"),
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
