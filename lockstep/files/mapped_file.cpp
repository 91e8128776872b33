#include "lockstep/files/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace lockstep::files {
namespace {

int regular_file_size(int fd, int64_t* size) {
  struct stat info {};
  if (fstat(fd, &info) != 0) return errno;
  if (S_ISDIR(info.st_mode)) return EISDIR;
  if (!S_ISREG(info.st_mode)) return ENODEV;  // what mmap says of pipes and terminals
  *size = info.st_size;
  return 0;
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  // O_NONBLOCK: opening a pipe that nobody writes to must not wait.
  fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) throw std::system_error(errno, std::generic_category(), path);
  int error = regular_file_size(fd_, &size_);
  if (error == 0 && size_ > 0) {  // an empty file cannot be mapped
    void* start = mmap(nullptr, static_cast<size_t>(size_), PROT_READ, MAP_SHARED, fd_, 0);
    if (start == MAP_FAILED) {
      error = errno;
    } else {
      data_ = static_cast<const unsigned char*>(start);
    }
  }
  if (error != 0) {
    close(fd_);
    throw std::system_error(error, std::generic_category(), path);
  }
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<unsigned char*>(data_), static_cast<size_t>(size_));
  close(fd_);
}

bool MappedFile::was_cut() const {
  struct stat info {};
  return fstat(fd_, &info) != 0 || info.st_size < size_;
}

void MappedFile::release(int64_t offset, int64_t bytes) const {
  static const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t begin = (offset + page - 1) / page * page;
  const int64_t end = (offset + bytes) / page * page;
  if (begin >= end) return;
  madvise(const_cast<unsigned char*>(data_) + begin, static_cast<size_t>(end - begin),
          MADV_DONTNEED);
}

}  // namespace lockstep::files
