/// Reads and writes of one file under way at once: what BlockFile hands its requests to.
///
/// Called by one thread at a time. A request's memory must stay until `next` has given it back.
#pragma once

#include <cstdint>
#include <memory>

namespace lockstep::files::detail {

class BlockIo {
 public:
  struct Request {
    bool write = false;
    int64_t offset = 0;
    char* data = nullptr;
    int64_t bytes = 0;
    uint64_t tag = 0;  // the caller's own
  };
  struct Done {
    uint64_t tag = 0;
    int64_t result = 0;  // bytes, perhaps fewer than asked for; a negative errno
  };

  virtual ~BlockIo() = default;
  /// At most `in_flight` (of the constructor) may be started and not given back.
  virtual void start(const Request& request) = 0;
  /// Waits for one of the started requests.
  virtual Done next() = 0;
  virtual const char* name() const = 0;
};

/// By the kernel's io_uring; null where it is not permitted, as in many containers.
std::unique_ptr<BlockIo> uring_io(int descriptor, int in_flight);

/// By two threads of its own, `ls-offload`.
std::unique_ptr<BlockIo> thread_io(int descriptor);

}  // namespace lockstep::files::detail
