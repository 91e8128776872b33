#include "lockstep/cli/work_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

std::string made(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw EnvironmentError(base::str("cannot make the folder ", folder, ": ", error.message(),
                                     ".\n  Another place: --keep FOLDER"));
  }
  if (!fs::is_empty(folder, error) || error) {
    throw UsageError(base::str("--keep ", folder,
                               " holds files of something else.\n"
                               "  Give it a folder that is empty or not there yet."));
  }
  return folder;
}

}  // namespace

WorkFolder::WorkFolder(const std::string& purpose, const std::string& keep) {
  if (keep.empty()) temporary_.emplace(purpose);
  path_ = keep.empty() ? temporary_->path() : made(keep);
}

Hush::Hush(const std::string& path) : out_(dup(1)), err_(dup(2)) {
  std::fflush(nullptr);
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0 || out_ < 0 || err_ < 0) {
    throw EnvironmentError(base::str("cannot write ", path, ": ", std::strerror(errno)));
  }
  dup2(file, 1);
  dup2(file, 2);
  close(file);
}

Hush::~Hush() {
  std::fflush(nullptr);
  dup2(out_, 1);
  dup2(err_, 2);
  close(out_);
  close(err_);
}

}  // namespace lockstep::cli
