#include "lockstep/files/detail/utf8.h"

#include <algorithm>
#include <cstring>

namespace lockstep::files::detail {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kSpacesBeyondAscii[] = {
    "\u0085"sv, "\u00a0"sv, "\u1680"sv, "\u2000"sv, "\u2001"sv, "\u2002"sv, "\u2003"sv,
    "\u2004"sv, "\u2005"sv, "\u2006"sv, "\u2007"sv, "\u2008"sv, "\u2009"sv, "\u200a"sv,
    "\u2028"sv, "\u2029"sv, "\u202f"sv, "\u205f"sv, "\u3000"sv};

bool in(unsigned char byte, int lo, int hi) { return byte >= lo && byte <= hi; }

/// Bytes at the front that are ASCII, in eights.
size_t ascii_bytes(std::string_view text) {
  size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) {
    uint64_t eight = 0;
    std::memcpy(&eight, text.data() + at, sizeof eight);
    if ((eight & 0x8080808080808080ull) != 0) break;
  }
  return at;
}

}  // namespace

size_t character_bytes(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t size = in(lead, 0xc2, 0xdf)   ? 2
                      : in(lead, 0xe0, 0xef) ? 3
                      : in(lead, 0xf0, 0xf4) ? 4
                                             : 0;
  if (size == 0 || text.size() < size) return 0;
  // The second byte rules out overlong forms, surrogates, and what lies beyond U+10FFFF.
  const int lo = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  const int hi = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  if (!in(byte(1), lo, hi)) return 0;
  for (size_t i = 2; i < size; ++i) {
    if (!in(byte(i), 0x80, 0xbf)) return 0;
  }
  return size;
}

size_t valid_utf8_bytes(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    at += ascii_bytes(text.substr(at));
    const size_t bytes = character_bytes(text.substr(at));
    if (bytes == 0) break;
    at += bytes;
  }
  return at;
}

size_t malformed_bytes(std::string_view text) {
  size_t at = 0;
  while (at < text.size() && character_bytes(text.substr(at)) == 0) ++at;
  return at;
}

bool begins_with_space(std::string_view text) {
  if (text.empty()) return false;
  if (static_cast<unsigned char>(text[0]) < 0x80)
    return " \t\n\v\f\r"sv.find(text[0]) != std::string_view::npos;
  return std::any_of(std::begin(kSpacesBeyondAscii), std::end(kSpacesBeyondAscii),
                     [text](std::string_view space) { return text.starts_with(space); });
}

std::string_view last_character(std::string_view text) {
  for (size_t bytes = 1; bytes <= std::min<size_t>(4, text.size()); ++bytes) {
    const auto end = text.substr(text.size() - bytes);
    if (character_bytes(end) == bytes) return end;
  }
  return {};
}

}  // namespace lockstep::files::detail
