#include "lockstep/files/temp_folder.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::files {

TempFolder::TempFolder(const std::string& purpose) {
  std::error_code no_folder;
  const auto parent = std::filesystem::temp_directory_path(no_folder);  // TMPDIR, else /tmp
  if (no_folder) {
    throw EnvironmentError(base::str("no folder for temporary files (", no_folder.message(),
                                     ").\n  Set TMPDIR to one that can be written."));
  }
  path_ = (parent / ("lockstep-" + purpose + "-XXXXXX")).string();
  if (mkdtemp(path_.data()) == nullptr) {
    throw EnvironmentError(base::str("cannot make a folder in ", parent.string(), ": ",
                                     std::strerror(errno),
                                     ".\n  Set TMPDIR to one that can be written."));
  }
}

TempFolder::~TempFolder() {
  std::error_code ignored;  // a destructor has nobody to tell
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace lockstep::files
