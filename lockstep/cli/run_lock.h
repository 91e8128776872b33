/// A run folder belongs to one command at a time.
///
/// RUN/lock is locked (flock) by the command and the ranks it starts, for as long as any of them is
/// there. The system lets go of it when they are gone, however they ended: a crash leaves no lock,
/// at most the file.
#pragma once

#include <string>

namespace lockstep::cli {

class RunLock {
 public:
  /// Throws EnvironmentError naming the process that has the folder, or why it cannot be locked.
  /// Waits for a moment: what was killed just now may still be on its way out.
  explicit RunLock(const std::string& folder);
  /// Removes the file.
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  std::string path_;
  int fd_ = -1;
};

}  // namespace lockstep::cli
