/// What a file given as token file might be instead.
#pragma once

#include <string>

#include "lockstep/files/mapped_file.h"

namespace lockstep::input::detail {

/// "a gzip file", or nothing if the file may be what it should be. A token file has no mark of its
/// own, so a format is named only where tokens would hardly ever look like it.
std::string other_format(const files::MappedFile& file);

}  // namespace lockstep::input::detail
