/// A GGUF file, mapped and read strictly: what `write_gguf` writes, and the like of other programs.
///
/// Opening checks the whole header. A file that opens holds exactly the tensors that it lists, one
/// behind the other, and `read` cannot leave it. Values and tensors of types that Lockstep does not
/// write (gguf.h) are refused by their number: quantised models are not read.
///
/// Holds   at most 16 bytes for each of the header, which has at most 100 MB
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/files/gguf.h"

namespace lockstep::files {

class GgufFile {
 public:
  struct Info {
    std::string name;
    std::string dtype;
    std::vector<int64_t> shape;  // row-major
    int64_t offset = 0;          // from the start of the data
    int64_t bytes = 0;
  };

  /// Throws StateError naming the file and what is wrong with it.
  static GgufFile open(const std::string& path);
  GgufFile(GgufFile&&) noexcept;
  GgufFile& operator=(GgufFile&&) noexcept;
  ~GgufFile();

  const GgufKeys& keys() const;
  /// Null if there is no such key.
  const GgufValue* find(const std::string& key) const;
  /// In the order of the file.
  const std::vector<Info>& tensors() const;
  /// Copies a tensor. Throws StateError if there is none of the name, or `bytes` is not its size.
  void read(const std::string& name, void* out, int64_t bytes) const;

 private:
  GgufFile();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::files
