/// GGUF, the model files of llama.cpp: keys with values, then tensors.
///
///   "GGUF" | uint32 3 | uint64 tensors | uint64 keys
///   a key     name | uint32 type | value          text is uint64 bytes | bytes
///   a tensor  name | uint32 rank | uint64 sizes, the fastest first | uint32 type | uint64 offset
///   data      from a multiple of 32 on, and each tensor at a multiple of 32 of it
///
/// Moves   every byte once      Holds   the header
/// Source  the format's page in github.com/ggml-org/ggml; docs/concepts/model_formats.md
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep::files {

/// The types of value that Lockstep writes, a part of the format's.
using GgufValue = std::variant<uint32_t, int32_t, float, bool, std::string,
                               std::vector<std::string>, std::vector<float>, std::vector<int32_t>>;
using GgufKeys = std::vector<std::pair<std::string, GgufValue>>;

inline constexpr int64_t kGgufAlignment = 32;

struct GgufTensor {
  std::string name;
  std::string dtype;           // "F32" or "F16"
  std::vector<int64_t> shape;  // row-major, the fastest last, as everywhere in Lockstep
  /// Asked once for numel values, when it is this tensor's turn, in the order of the file.
  std::function<const void*()> bring;
};

/// Writes `keys` and `tensors` in this order, whole or not at all.
///
/// throws  UsageError: a name twice, empty or above 64 bytes (of a tensor), no dtype of the two, a
///         rank outside 1 to 4. StateError: the file cannot be written
void write_gguf(const std::string& path, const GgufKeys& keys,
                const std::vector<GgufTensor>& tensors);

}  // namespace lockstep::files
