/// Token files written piece by piece, in the formats of token_layout.h. Memory does not grow with
/// the tokens; Megatron's index needs 12 bytes a document.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/files/token_layout.h"

namespace lockstep::files {

class TokenWriter {
 public:
  virtual ~TokenWriter() = default;

  /// Throws UsageError naming the first id that the type cannot hold, StateError if the disk is
  /// full.
  virtual void write(const std::vector<int64_t>& ids) = 0;
  /// What was written since the last call is a document. Only Megatron's index keeps it.
  virtual void end_document() = 0;
  /// Puts the file (Megatron: both) in place. Without it nothing stays. Throws StateError.
  virtual void commit() = 0;
  virtual int64_t tokens() const = 0;
};

/// The type that `format` has for ids below `vocab_size`. nanoGPT and llm.c: uint16 up to 65,536
/// ids, else uint32; Megatron: uint16 below 65,500, else int32, as its own tools choose.
TokenType token_type_for(TokenFormat format, int64_t vocab_size);

/// A writer of `path` ("X.bin"; for Megatron X.idx comes with it).
///
/// throws  UsageError: the format has no such type (llm.c: uint16 and uint32; nanoGPT: the same;
///         Megatron: all but uint32). StateError: the file cannot be made
std::unique_ptr<TokenWriter> make_token_writer(const std::string& path, TokenFormat format,
                                               TokenType type);

}  // namespace lockstep::files
