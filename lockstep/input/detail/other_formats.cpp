#include "lockstep/input/detail/other_formats.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string_view>

namespace lockstep::input::detail {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kMegatronIndex = "MMIDIDX\0\0"sv;

struct Magic {
  std::string_view bytes;
  const char* what;
};

constexpr Magic kMagics[] = {
    {kMegatronIndex, "the index of a Megatron dataset"},
    {"\x1f\x8b\x08"sv, "a gzip file (gunzip it first)"},
    {"PK\x03\x04"sv, "a zip file (PyTorch checkpoints are zip files too)"},
    {"\x93NUMPY"sv, "a NumPy array file"},
    {"GGUF"sv, "a GGUF model file"},
};

struct Number {
  uint32_t value;
  const char* what;
};

constexpr Number kLlmcNumbers[] = {
    {20240520, "a token file of llm.c (GPT-2 tokens after a header of 1024 bytes)"},
    {20240801, "a token file of llm.c (Llama 3 tokens of four bytes)"},
    {20240522, "an evaluation file of llm.c"},
    {20240328, "a tokenizer file of llm.c"},
    {20240326, "a model file of llm.c"},
    {20240527, "a state file of llm.c"},
};

bool is_safetensors(std::string_view bytes) {
  if (bytes.size() < 10) return false;
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  // The byte after { tells it from the token of a brace, whose second byte is 0.
  return header_bytes >= 2 && header_bytes <= bytes.size() - 8 && bytes[8] == '{' &&
         "\"} \n\t"sv.find(bytes[9]) != std::string_view::npos;
}

/// "80 04" alone is a common token. A pickle also ends in a full stop, and what follows its version
/// is one of few opcodes.
bool is_pickle(std::string_view bytes) {
  if (bytes.size() < 4 || bytes[0] != '\x80' || bytes.back() != '.') return false;
  if (bytes[1] == 2 || bytes[1] == 3) return "}](cXK"sv.find(bytes[2]) != std::string_view::npos;
  return (bytes[1] == 4 || bytes[1] == 5) && bytes[2] == '\x95';
}

/// Tokens of text would have to fall on printable pairs of bytes, dozens of times in a row.
bool is_text(std::string_view bytes) {
  constexpr size_t kEnough = 64;
  if (bytes.size() < kEnough) return false;
  const auto start = bytes.substr(0, 4096);
  return std::all_of(start.begin(), start.end(), [](char c) {
    return (c >= ' ' && c <= '~') || c == '\n' || c == '\r' || c == '\t';
  });
}

/// Megatron's X.bin has no mark: its X.idx has.
bool has_megatron_index(const std::string& path) {
  constexpr std::string_view kSuffix = ".bin";
  if (!path.ends_with(kSuffix)) return false;
  std::ifstream index(path.substr(0, path.size() - kSuffix.size()) + ".idx", std::ios::binary);
  std::string start(kMegatronIndex.size(), ' ');
  index.read(start.data(), static_cast<std::streamsize>(start.size()));
  return start == kMegatronIndex;
}

}  // namespace

std::string other_format(const files::MappedFile& file) {
  const auto bytes = file.text();
  for (const auto& magic : kMagics) {
    if (bytes.starts_with(magic.bytes)) return magic.what;
  }
  if (bytes.size() >= 4) {
    uint32_t first = 0;
    std::memcpy(&first, bytes.data(), sizeof first);
    for (const auto& number : kLlmcNumbers) {
      if (first == number.value) return number.what;
    }
  }
  if (is_safetensors(bytes)) return "a safetensors file";
  if (is_pickle(bytes)) return "a Python pickle";
  if (has_megatron_index(file.path()))
    return "the data of a Megatron dataset (an .idx lies beside it)";
  if (is_text(bytes)) {
    return "a text file, not tokens: run lockstep data prepare text --from " + file.path() +
           " --out FOLDER";
  }
  return "";
}

}  // namespace lockstep::input::detail
