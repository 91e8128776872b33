#include "lockstep/launch/console.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

namespace lockstep::launch {

void Console::add(std::string_view text) {
  if (error_.empty()) waiting_.append(text);
}

void Console::write_some() {
  // A pipe that is writable has room for PIPE_BUF bytes; more could block.
  const size_t bytes = std::min<size_t>(waiting_.size() - written_, PIPE_BUF);
  const ssize_t done = write(fd_, waiting_.data() + written_, bytes);
  if (done < 0) {
    if (errno == EINTR || errno == EAGAIN) return;
    error_ = std::strerror(errno);
    waiting_.clear();
    written_ = 0;
    return;
  }
  written_ += static_cast<size_t>(done);
  if (written_ < waiting_.size() && written_ < kPlenty) return;
  waiting_.erase(0, written_);
  written_ = 0;
}

}  // namespace lockstep::launch
