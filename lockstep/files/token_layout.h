/// Where the tokens lie in a token file, whatever its format.
///
///   nanoGPT    X.bin: uint16 from the first byte on; uint32 if the meta.json beside it says so
///   llm.c      X.bin: 256 int32 (magic, version, tokens), then uint16 (GPT-2) or uint32 (Llama 3)
///   Megatron   X.bin: tokens back to back; X.idx: their type, sequences and documents
///
/// All are little-endian, and in all the tokens are one array.
///
/// Source  karpathy/nanoGPT data/*/prepare.py, karpathy/llm.c dev/data/data_common.py,
///         NVIDIA/Megatron-LM megatron/core/datasets/indexed_dataset.py
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/files/mapped_file.h"

namespace lockstep::files {

enum class TokenFormat { nanogpt, llmc, megatron };
enum class TokenType { u8, i8, i16, i32, i64, u16, u32 };

const char* name_of(TokenFormat format);  // "nanogpt", as --format takes it
const char* name_of(TokenType type);      // "uint16"
int64_t bytes_of(TokenType type);

struct TokenLayout {
  TokenFormat format = TokenFormat::nanogpt;
  TokenType type = TokenType::u16;
  int64_t offset = 0;  // of the first token, in bytes
  int64_t tokens = 0;
  /// Megatron only: the first token of each document, in order; the last entry is the end of the
  /// last document. Windows of training may cross them.
  std::vector<int64_t> documents = {};
};

/// What llm.c writes at the front of its files, as int32.
inline constexpr int32_t kLlmcGpt2Magic = 20240520;   // version 1, uint16
inline constexpr int32_t kLlmcLlamaMagic = 20240801;  // version 7, uint32
inline constexpr int64_t kLlmcHeaderBytes = 1024;

inline constexpr std::string_view kMegatronMagic{"MMIDIDX\0\0", 9};

/// "X.bin" -> "X.idx".
std::string megatron_index_path(const std::string& data_path);

/// The layout of `file`, a token file of any format; a Megatron file is known by the index beside
/// it. Throws EnvironmentError: what the file is instead, or by position what is wrong with it.
TokenLayout token_layout(const MappedFile& file);

}  // namespace lockstep::files
