/// A file of tokens, mapped: nanoGPT's `train.bin` (no header, uint16 little-endian).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace lockstep::input {

class TokenFile {
 public:
  /// Throws EnvironmentError naming file and reason: not there (and the command that prepares it),
  /// empty, an odd number of bytes, a header of another format (llm.c, Megatron).
  static std::shared_ptr<const TokenFile> open(const std::string& path);
  ~TokenFile();

  const std::string& path() const;
  int64_t size() const;   // tokens

  /// Copies tokens first, first + 1, ... into `out`.
  void read(int64_t first, int64_t count, int64_t* out) const;

  /// Throws EnvironmentError naming the first position whose id is `vocab` or more.
  void check_ids(int64_t vocab) const;

 private:
  TokenFile() = default;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::input
