/// The index of a Megatron dataset, read strictly.
///
///   0        "MMIDIDX" and two zero bytes          9   uint64 version, 1
///   17       uint8 type code                      18   uint64 S, sequences
///   26       uint64 D, document entries           34   S int32 lengths in tokens
///   34+4S    S int64 byte offsets into the data
///   34+12S   D int64 document boundaries: the first is 0, the last S
///   then     S int8 modes, in files of several media only
///
/// Arrays after byte 34 lie at odd addresses, so they are copied out.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "lockstep/files/token_layout.h"

namespace lockstep::files::detail {

inline constexpr int64_t kMegatronHeaderBytes = 34;

/// The code that the index has for `type`; 0 if it has none (uint32).
int megatron_code(TokenType type);

/// The layout of data of `data_bytes` that `index` describes. Throws EnvironmentError with the
/// reason alone: the caller knows the files' names. Memory follows the size of `index`.
TokenLayout parse_megatron_index(std::string_view index, int64_t data_bytes);

}  // namespace lockstep::files::detail
