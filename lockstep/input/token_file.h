/// A file of tokens, mapped: nanoGPT's, llm.c's or Megatron's (files/token_layout.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/files/token_layout.h"
#include "lockstep/input/token_source.h"

namespace lockstep::input {

class TokenFile : public TokenSource {
 public:
  /// `path` of a Megatron dataset may be its .bin or its .idx.
  ///
  /// throws  EnvironmentError naming file and reason: not there (and the command that prepares
  ///         it), empty, cut short, a header that does not fit, another format (text, zip, ...)
  static std::shared_ptr<const TokenFile> open(const std::string& path);
  ~TokenFile() override;

  const std::string& path() const override;
  int64_t size() const override;
  /// Throws EnvironmentError if somebody has cut the file since it was opened.
  void read(int64_t first, int64_t count, int64_t* out) const override;

  const files::TokenLayout& layout() const;

 private:
  TokenFile() = default;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::input
