#include "lockstep/cli/run_lock.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <sstream>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/cli/run_folder.h"

namespace lockstep::cli {
namespace {

using namespace std::chrono_literals;
// What was killed a moment ago may not be gone yet, and its ranks neither.
constexpr auto kPatience = 500ms;
constexpr auto kTimeToDie = 5s;

std::string host() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

/// Who wrote the file: "4711 on host".
struct Owner {
  pid_t pid = 0;
  std::string host;
};

Owner owner_in(const std::string& path) {
  Owner owner;
  try {
    std::istringstream in(read_file(path));
    in >> owner.pid >> owner.host;
  } catch (const StateError&) {
    // It let go in this moment.
  }
  return owner;
}

bool is_gone(const Owner& owner) {
  return owner.pid > 0 && owner.host == host() && kill(owner.pid, 0) != 0 && errno == ESRCH;
}

/// False: the file that was locked is no longer the one of that name.
bool is_still(int fd, const std::string& path) {
  struct stat mine {};
  struct stat there {};
  return fstat(fd, &mine) == 0 && stat(path.c_str(), &there) == 0 && mine.st_ino == there.st_ino &&
         mine.st_dev == there.st_dev;
}

}  // namespace

RunLock::RunLock(const std::string& folder) : path_(folder + "/lock") {
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    fd_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd_ < 0) {
      throw EnvironmentError(
          base::str("cannot lock the run folder: ", path_, ": ", std::strerror(errno), "."));
    }
    if (flock(fd_, LOCK_EX | LOCK_NB) == 0) {
      if (is_still(fd_, path_)) break;
      close(fd_);  // its owner has just removed it
      continue;
    }
    const int reason = errno;
    close(fd_);
    if (reason != EWOULDBLOCK) {
      throw EnvironmentError(
          base::str("cannot lock the run folder: ", path_, ": ", std::strerror(reason), "."));
    }
    const Owner owner = owner_in(path_);
    const auto waited = std::chrono::steady_clock::now() - start;
    if (waited < kPatience || (is_gone(owner) && waited < kTimeToDie)) {
      std::this_thread::sleep_for(10ms);
      continue;
    }
    throw EnvironmentError(
        base::str(folder, " is in use: ",
                  owner.pid > 0 ? base::str("process ", owner.pid, " on ", owner.host, " runs it")
                                : std::string("another command runs it"),
                  ".\n  Wait for its end, or stop it: a run has one command at a time."));
  }
  // The ranks hold it, too: they outlive a killed command by a moment.
  fcntl(fd_, F_SETFD, 0);
  const std::string text = base::str(getpid(), " ", host(), "\n");
  if (ftruncate(fd_, 0) != 0 ||
      pwrite(fd_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    const int reason = errno;
    unlink(path_.c_str());
    close(fd_);
    throw EnvironmentError(base::str("cannot write ", path_, ": ", std::strerror(reason), "."));
  }
}

RunLock::~RunLock() {
  // While it is locked: who opens it now finds that it is no longer there, and makes another.
  unlink(path_.c_str());
  close(fd_);
}

}  // namespace lockstep::cli
