#include "lockstep/files/other_formats.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "lockstep/files/detail/utf8.h"

namespace lockstep::files {
namespace {

using namespace std::string_view_literals;

struct Magic {
  std::string_view bytes;
  const char* what;
};

constexpr Magic kMagics[] = {
    {"MMIDIDX\0\0"sv, "the index of a Megatron dataset, whose data are missing"},
    {"\x1f\x8b\x08"sv, "a gzip file (gunzip it first)"},
    {"\x93NUMPY"sv, "a NumPy array file"},
    {"GGUF"sv, "a GGUF model file"},
};

struct Number {
  uint32_t value;
  const char* what;
};

constexpr Number kLlmcNumbers[] = {
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

/// Tokens of text would have to fall on letters, dozens of times in a row.
bool is_text(std::string_view bytes) {
  constexpr size_t kEnough = 64;
  if (bytes.size() < kEnough) return false;
  const auto start = bytes.substr(0, 4096);
  const size_t whole = detail::valid_utf8_bytes(start);
  const bool cut_in_a_character = bytes.size() > start.size() && start.size() - whole < 4;
  if (whole < start.size() && !cut_in_a_character) return false;
  return std::none_of(start.begin(), start.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < ' ' && "\t\n\f\r"sv.find(c) == std::string_view::npos) || byte == 127;
  });
}

}  // namespace

std::string code_carrying_format(std::string_view bytes) {
  if (bytes.starts_with("PK\x03\x04"sv) || bytes.starts_with("PK\x05\x06"sv)) {
    return "a zip file (a PyTorch checkpoint is a zip with a pickle in it)";
  }
  // torch.save until 2020: pickles one after another, of which the first is a number.
  if (bytes.starts_with("\x80\x02\x8a\x0al\xfc\x9c"sv)) return "a PyTorch checkpoint of pickles";
  return is_pickle(bytes) ? "a Python pickle" : "";
}

std::string other_format(std::string_view bytes) {
  if (const std::string code = code_carrying_format(bytes); !code.empty()) return code;
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
  return is_text(bytes) ? "a text file, not tokens" : "";
}

}  // namespace lockstep::files
