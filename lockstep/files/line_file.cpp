#include "lockstep/files/line_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"

namespace lockstep::files {

LineFile::LineFile(std::string path, Start start) : path_(std::move(path)) {
  const int emptied = start == Start::empty ? O_TRUNC : 0;
  fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | emptied | O_CLOEXEC, 0666);
  if (fd_ >= 0) bytes_ = lseek(fd_, 0, SEEK_END);
  if (fd_ < 0 || bytes_ < 0) {
    const int reason = errno;
    if (fd_ >= 0) close(fd_);
    throw StateError(base::str(path_, " cannot be written: ", std::strerror(reason), "."));
  }
}

LineFile::~LineFile() { close(fd_); }

void LineFile::add(std::string_view line) {
  const std::string text = std::string(line) + '\n';
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n =
        pwrite(fd_, text.data() + done, text.size() - done, bytes_ + static_cast<int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int reason = errno;
      [[maybe_unused]] const int cut = ftruncate(fd_, bytes_);
      throw StateError(base::str(path_, ": ", text.size(), " bytes cannot be written after ",
                                 base::with_commas(bytes_), ": ", std::strerror(reason), "."));
    }
    done += static_cast<size_t>(n);
  }
  bytes_ += static_cast<int64_t>(text.size());
}

}  // namespace lockstep::files
