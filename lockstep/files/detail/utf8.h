/// UTF-8, read strictly.
///
/// Source  The Unicode Standard, table 3-7 (well-formed byte sequences)
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lockstep::files::detail {

/// Bytes of the character at the front of `text`; 0 if none is there, or it is malformed (overlong,
/// surrogate, beyond U+10FFFF, cut short).
size_t character_bytes(std::string_view text);

/// Bytes at the front of `text` that are valid UTF-8, whole characters only.
size_t valid_utf8_bytes(std::string_view text);

/// Bytes at the front of `text` up to the next character that is well-formed.
size_t malformed_bytes(std::string_view text);

/// Whether the well-formed character at the front is one of Unicode's White_Space.
bool begins_with_space(std::string_view text);

/// The last character of `text`; empty if that is malformed.
std::string_view last_character(std::string_view text);

}  // namespace lockstep::files::detail
