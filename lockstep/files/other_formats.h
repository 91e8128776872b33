/// What a file might be instead of what it was given as.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::files {

/// "a gzip file (gunzip it first)", or nothing if the bytes may be tokens. Token files have no mark
/// of their own, so a format is named only where tokens would hardly ever look like it.
std::string other_format(std::string_view bytes);

/// "a Python pickle", "a zip file ...", or nothing: what a file of weights or settings is often
/// mistaken for. Such files can carry code; nothing here runs any.
std::string code_carrying_format(std::string_view bytes);

}  // namespace lockstep::files
