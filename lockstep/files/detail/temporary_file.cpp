#include "lockstep/files/detail/temporary_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"

namespace lockstep::files::detail {
namespace {

[[noreturn]] void refuse(const std::string& folder, int64_t bytes, const std::string& why) {
  throw EnvironmentError(base::str("no offload file of ", base::bytes_text(bytes), " in ", folder,
                                   ": ", why, ".\n  Free space there, or name another folder."));
}

/// Bytes that this user can still write in the file's file system; -1: it does not say.
int64_t free_bytes(int descriptor) {
  struct statvfs room {};
  if (fstatvfs(descriptor, &room) != 0 || room.f_blocks == 0) return -1;
  return static_cast<int64_t>(room.f_bavail) * static_cast<int64_t>(room.f_frsize);
}

/// Opened without a name where the file system can (O_TMPFILE), else by one that is removed at
/// once; `name` is that name then.
int open_unnamed(const std::string& folder, int flags, std::string& name) {
  const int descriptor = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);
  if (descriptor >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return descriptor;
  name = folder + "/lockstep-offload-XXXXXX";
  return mkostemp(name.data(), O_CLOEXEC | flags);
}

}  // namespace

TemporaryFile::TemporaryFile(const std::string& folder, int64_t bytes, bool want_direct) {
  // Growing past this limit would end the process by SIGXFSZ.
  rlimit largest{};
  if (getrlimit(RLIMIT_FSIZE, &largest) == 0 && largest.rlim_cur < static_cast<rlim_t>(bytes)) {
    refuse(folder, bytes,
           base::str("files of this process may have ",
                     base::bytes_text(static_cast<int64_t>(largest.rlim_cur)), " (ulimit -f)"));
  }
  open_in(folder, want_direct);
  try {
    reserve(folder, bytes);
  } catch (...) {
    close(descriptor_);
    if (!still_named_.empty()) unlink(still_named_.c_str());
    throw;
  }
}

TemporaryFile::~TemporaryFile() {
  close(descriptor_);
  if (!still_named_.empty()) unlink(still_named_.c_str());
}

void TemporaryFile::open_in(const std::string& folder, bool want_direct) {
  std::string name;
  if (want_direct) descriptor_ = open_unnamed(folder, O_DIRECT, name);
  direct_ = descriptor_ >= 0;
  if (!direct_) descriptor_ = open_unnamed(folder, 0, name);
  if (descriptor_ < 0) {
    throw EnvironmentError(base::str("cannot make an offload file in ", folder, ": ",
                                     std::strerror(errno), ".\n  Name a folder on a fast disk."));
  }
  if (!name.empty() && unlink(name.c_str()) != 0) still_named_ = name;
}

void TemporaryFile::reserve(const std::string& folder, int64_t bytes) const {
  // Asked first: a disk is not filled to find out that it is too small.
  const int64_t room = free_bytes(descriptor_);
  const auto has = [&] { return base::str(base::bytes_text(room), " are free"); };
  if (room >= 0 && room < bytes) refuse(folder, bytes, has());
  if (bytes == 0 || fallocate(descriptor_, 0, 0, bytes) == 0) return;
  if (errno == ENOSPC) refuse(folder, bytes, has());
  // Without fallocate only the size is set, and a disk that fills later is an error of a write.
  if (errno != EOPNOTSUPP || ftruncate(descriptor_, bytes) != 0) {
    refuse(folder, bytes, std::strerror(errno));
  }
}

}  // namespace lockstep::files::detail
