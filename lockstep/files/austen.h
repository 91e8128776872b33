/// Six novels by Jane Austen: the text to try things on.
///
/// They come in a package of the R language, as a database of string vectors:
///
///   record      uint32 big-endian raw length, then one zlib stream; records back to back
///   raw block   "X\n", then big-endian int32s: version 3, two version words, 5 and "UTF-8",
///               flags 16 (string vector), count; per string flags (low byte 9), length, bytes
#pragma once

#include <string>

#include "lockstep/files/token_data.h"

namespace lockstep::files {

/// Of the text that `austen_text` returns.
inline constexpr const char* kAustenSha256 =
    "65b434d16a8755142bfa95ba19c5f9abd0d30cf3dffe3b6793e834f9f56dcc96";

/// The novels one after the other, lines ended by LF: 4,025,029 bytes. Throws EnvironmentError if
/// `rdb_path` cannot be decoded, or holds another text.
std::string austen_text(const std::string& rdb_path);

/// The string vectors of an R database of this kind, each joined with LF and ended with LF. Throws
/// EnvironmentError naming file, record and reason.
std::string decode_r_strings(const std::string& rdb_path);

/// Makes a folder of token data (token_data.h) from the novels.
///
/// from    the package's .deb, or its Rdata.rdb; empty: the package is fetched with apt-get
/// options `source` is filled in
/// returns false if the folder held their bytes already as asked for, and nothing was done
/// throws  EnvironmentError: no way to the package, or another text in it. StateError: a file
///         cannot be written
bool prepare_austen(const std::string& from, Tokenizer& tokenizer, TokenDataOptions options);

}  // namespace lockstep::files
