/// safetensors: tensors by name in one file, with nothing in it that could run.
///
///   uint64 N | N bytes of JSON, padded with spaces | data
///   JSON: "name": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, offsets into data
///
/// Moves   every byte once      Holds   the header, and 16 MiB of mapped pages while reading
/// Source  the format's README, github.com/huggingface/safetensors
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::files {

struct TensorEntry {
  std::string name;
  std::string dtype;  // as in the file: "F32", "BF16", "I64", ...
  std::vector<int64_t> shape;
  const void* data = nullptr;  // row-major; read by write_safetensors only, not kept
  int64_t bytes = 0;
  /// In the place of `data`: asked once, when it is this tensor's turn, in the order of the file.
  std::function<const void*()> bring = {};
};

/// Writes `tensors` to `path`, whole or not at all. Wider types come first, so that every tensor
/// lies aligned to its type; within a width the caller's order stays.
///
/// throws  UsageError: bytes other than shape and dtype say, a name twice, text that is no UTF-8.
///         StateError: the file cannot be written; names file, bytes written and the reason
void write_safetensors(const std::string& path, const std::vector<TensorEntry>& tensors,
                       const std::map<std::string, std::string>& metadata);

/// A safetensors file, mapped. Opening checks the whole header: a file that opens holds exactly the
/// tensors it lists, and `read` cannot leave it. Methods are const and safe from several threads.
class SafetensorsFile {
 public:
  struct Info {
    std::string dtype;
    std::vector<int64_t> shape;
    int64_t offset = 0;  // from the start of the data part
    int64_t bytes = 0;
  };

  /// Throws StateError naming the file and what is wrong with it.
  static SafetensorsFile open(const std::string& path);
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;
  ~SafetensorsFile();

  const std::string& path() const;
  /// The file up to its data, 8 + N bytes: what a digest of the header is taken over.
  std::string header_bytes() const;
  const std::map<std::string, std::string>& metadata() const;
  /// In the order of the data.
  std::vector<std::string> names() const;
  bool has(const std::string& name) const;
  /// Throws StateError if there is no such tensor; offers the nearest name.
  const Info& info(const std::string& name) const;
  /// Copies a tensor. Throws StateError if `bytes` is not its size.
  void read(const std::string& name, void* out, int64_t bytes) const;
  /// Copies `bytes` of a tensor from its byte `first_byte` on. Throws StateError if it ends sooner.
  void read_part(const std::string& name, int64_t first_byte, int64_t bytes, void* out) const;

 private:
  SafetensorsFile();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Bits of one element of a dtype of the format; 0 if there is no such dtype.
int safetensors_dtype_bits(const std::string& dtype);

}  // namespace lockstep::files
