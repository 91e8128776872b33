#include "lockstep/files/token_layout.h"

#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/files/detail/megatron_index.h"
#include "lockstep/files/other_formats.h"
#include "lockstep/files/token_data.h"

namespace lockstep::files {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

constexpr std::string_view kData = ".bin";

int32_t int_at(const MappedFile& file, int64_t index) {
  int32_t value = 0;
  std::memcpy(&value, file.data() + 4 * index, sizeof value);
  return value;
}

std::string bytes_text_of(int64_t bytes) {
  return base::with_commas(bytes) + (bytes == 1 ? " byte" : " bytes");
}

bool is_llmc(const MappedFile& file) {
  if (file.size() < 4) return false;
  return int_at(file, 0) == kLlmcGpt2Magic || int_at(file, 0) == kLlmcLlamaMagic;
}

TokenLayout llmc_layout(const MappedFile& file) {
  const auto bad = [&file](const std::string& reason) {
    throw EnvironmentError(
        base::str(file.path(), " begins like a token file of llm.c, but ", reason, "."));
  };
  if (file.size() < kLlmcHeaderBytes) {
    bad(base::str("has ", bytes_text_of(file.size()), ", less than its header of ",
                  kLlmcHeaderBytes, ": it is cut short"));
  }
  const bool llama = int_at(file, 0) == kLlmcLlamaMagic;
  const int32_t version = llama ? 7 : 1;
  if (int_at(file, 1) != version) {
    bad(base::str("its version at byte 4 is ", int_at(file, 1), "; known is ", version));
  }
  const TokenType type = llama ? TokenType::u32 : TokenType::u16;
  const int64_t stated = int_at(file, 2);
  const int64_t there = file.size() - kLlmcHeaderBytes;
  if (stated < 0 || stated * bytes_of(type) != there) {
    bad(base::str("it states ", stated, " tokens of ", bytes_of(type), " bytes at byte 8, and ",
                  bytes_text_of(there), " follow its header",
                  stated * bytes_of(type) > there ? ": it is cut short" : ""));
  }
  return {.format = TokenFormat::llmc, .type = type, .offset = kLlmcHeaderBytes, .tokens = stated};
}

bool has_megatron_index(const std::string& path) {
  if (!path.ends_with(kData)) return false;
  std::ifstream index(megatron_index_path(path), std::ios::binary);
  std::string start(kMegatronMagic.size(), ' ');
  index.read(start.data(), static_cast<std::streamsize>(start.size()));
  return start == kMegatronMagic;
}

TokenLayout megatron_layout(const MappedFile& file) {
  const std::string path = megatron_index_path(file.path());
  try {
    const MappedFile index(path);
    return detail::parse_megatron_index(index.text(), file.size());
  } catch (const std::system_error& error) {
    throw EnvironmentError(base::str("cannot read ", path, ": ", error.code().message(), "."));
  } catch (const EnvironmentError& error) {
    throw EnvironmentError(
        base::str(path, " is no index of ", file.path(), ": ", error.what(), "."));
  }
}

/// nanoGPT's layout has nothing that tells its width; the meta.json beside it may.
TokenType flat_type(const MappedFile& file) {
  const auto meta = read_token_meta(file.path());
  return meta && meta->dtype == name_of(TokenType::u32) ? TokenType::u32 : TokenType::u16;
}

}  // namespace

const char* name_of(TokenFormat format) {
  constexpr const char* kNames[] = {"nanogpt", "llmc", "megatron"};
  return kNames[static_cast<int>(format)];
}

const char* name_of(TokenType type) {
  constexpr const char* kNames[] = {"uint8", "int8", "int16", "int32", "int64", "uint16", "uint32"};
  return kNames[static_cast<int>(type)];
}

int64_t bytes_of(TokenType type) {
  constexpr int64_t kBytes[] = {1, 1, 2, 4, 8, 2, 4};
  return kBytes[static_cast<int>(type)];
}

std::string megatron_index_path(const std::string& data_path) {
  return data_path.substr(0, data_path.size() - kData.size()) + ".idx";
}

TokenLayout token_layout(const MappedFile& file) {
  const std::string& path = file.path();
  if (has_megatron_index(path)) return megatron_layout(file);
  if (file.size() == 0) throw EnvironmentError("the data file " + path + " is empty.");
  if (is_llmc(file)) return llmc_layout(file);
  if (const std::string other = other_format(file.text()); !other.empty()) {
    const bool text = other.starts_with("a text file");
    throw EnvironmentError(
        base::str(path, " is ", other, ".\n  ",
                  text ? base::str("Tokens of it: lockstep data prepare ", path, " --out FOLDER")
                       : std::string("Needed is a token file of nanoGPT, llm.c or Megatron.")));
  }
  const TokenType type = flat_type(file);
  if (file.size() % bytes_of(type) != 0) {
    throw EnvironmentError(base::str(path, " has ", bytes_text_of(file.size()),
                                     ", no whole number of tokens of ", bytes_of(type),
                                     " bytes: it is cut short or no token file."));
  }
  return {.format = TokenFormat::nanogpt,
          .type = type,
          .offset = 0,
          .tokens = file.size() / bytes_of(type)};
}

}  // namespace lockstep::files
