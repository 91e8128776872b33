/// A file of tokens, mapped: nanoGPT's `train.bin` (no header, uint16 little-endian).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace lockstep::input {

class TokenFile {
 public:
  /// Throws EnvironmentError naming file and reason: not there (and the command that prepares it),
  /// empty, an odd number of bytes, another format (llm.c, Megatron, safetensors, text, ...).
  static std::shared_ptr<const TokenFile> open(const std::string& path);
  ~TokenFile();

  const std::string& path() const;
  int64_t size() const;  // tokens

  /// Copies tokens first, first + 1, ... into `out`. Any thread may call. Throws UsageError if they
  /// are not in the file, EnvironmentError if somebody has cut it since it was opened.
  void read(int64_t first, int64_t count, int64_t* out) const;

  /// Throws EnvironmentError naming the first position whose id is `vocab` or more.
  void check_ids(int64_t vocab) const;

  int64_t largest_id() const;

 private:
  TokenFile() = default;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Throws EnvironmentError, naming the largest context that fits, if `file` has fewer tokens than
/// one window: `context` inputs and the last target.
void require_window(const TokenFile& file, int64_t context);

}  // namespace lockstep::input
