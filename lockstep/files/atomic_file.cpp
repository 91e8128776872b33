#include "lockstep/files/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/files/write_point.h"

namespace lockstep::files {
namespace {

constexpr size_t kBufferBytes = 256 * KiB;
/// What goes to the disk at once: it works while the caller makes the next bytes.
constexpr int64_t kPieceBytes = 4 * MiB;

/// A rename is durable once its folder is. Some file systems cannot sync a folder: the file itself
/// is synced already, so that is no error.
void sync_folder_of(const std::string& path) {
  auto folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) folder = ".";
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);
  close(fd);
}

}  // namespace

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  static std::atomic<int> count{0};  // several threads of a process may write the same file
  temporary_ = base::str(path_, ".tmp-", getpid(), "-", count++);
  fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) fail("create");
  pass_write_point();
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) close(fd_);
  if (!committed_) unlink(temporary_.c_str());
}

void AtomicFile::expect(int64_t bytes) {
  // Without effect where the file system cannot; a disk that is full says so when it is written to.
  if (bytes > 0) fallocate(fd_, FALLOC_FL_KEEP_SIZE, 0, bytes);
}

void AtomicFile::write(const void* data, int64_t bytes) {
  LOCKSTEP_ASSERT(fd_ >= 0, "a committed file takes no more bytes");
  if (bytes <= 0) return;
  const auto size = static_cast<size_t>(bytes);
  if (buffer_.size() + size > kBufferBytes) flush();
  if (size >= kBufferBytes) {
    write_through(static_cast<const char*>(data), bytes);
  } else {
    buffer_.append(static_cast<const char*>(data), size);
  }
}

void AtomicFile::write_at_front(std::string_view bytes) {
  flush();
  LOCKSTEP_ASSERT(static_cast<int64_t>(bytes.size()) <= written_, "only what is there is replaced");
  if (lseek(fd_, 0, SEEK_SET) != 0) fail("write");
  const int64_t before = written_;
  write_through(bytes.data(), static_cast<int64_t>(bytes.size()));
  written_ = before;
  if (lseek(fd_, 0, SEEK_END) < 0) fail("write");
}

void AtomicFile::commit() {
  flush();
  if (fsync(fd_) != 0) fail("write");
  pass_write_point();
  const int fd = fd_;
  fd_ = -1;
  if (close(fd) != 0) fail("write");
  if (rename(temporary_.c_str(), path_.c_str()) != 0) fail("put in place");
  committed_ = true;
  pass_write_point();
  sync_folder_of(path_);
}

void AtomicFile::flush() {
  write_through(buffer_.data(), static_cast<int64_t>(buffer_.size()));
  buffer_.clear();
}

void AtomicFile::write_through(const char* data, int64_t bytes) {
  while (bytes > 0) {
    const ssize_t n = ::write(fd_, data, static_cast<size_t>(std::min(bytes, kPieceBytes)));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("write");
    if (n == kPieceBytes) sync_file_range(fd_, written_, n, SYNC_FILE_RANGE_WRITE);
    pass_write_point();
    data += n;
    bytes -= n;
    written_ += n;
  }
}

void AtomicFile::fail(const char* action) const {
  const int error = errno;
  throw StateError(base::str("cannot ", action, " ", path_, " (after ", base::with_commas(written_),
                             " bytes): ", std::strerror(error), "."));
}

}  // namespace lockstep::files
