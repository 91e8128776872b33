#include <liburing.h>

#include <cerrno>

#include "lockstep/base/assert.h"
#include "lockstep/files/detail/block_io.h"

namespace lockstep::files::detail {
namespace {

class UringIo final : public BlockIo {
 public:
  explicit UringIo(int descriptor) : descriptor_(descriptor) {}
  ~UringIo() override {
    if (open_) io_uring_queue_exit(&ring_);
  }

  bool open(int in_flight) {
    open_ = io_uring_queue_init(static_cast<unsigned>(in_flight), &ring_, 0) == 0;
    return open_;
  }

  void start(const Request& request) override {
    io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
    LOCKSTEP_ASSERT(entry != nullptr, "no more are in flight than the ring has places");
    const auto bytes = static_cast<unsigned>(request.bytes);
    const auto offset = static_cast<uint64_t>(request.offset);
    if (request.write) {
      io_uring_prep_write(entry, descriptor_, request.data, bytes, offset);
    } else {
      io_uring_prep_read(entry, descriptor_, request.data, bytes, offset);
    }
    io_uring_sqe_set_data64(entry, request.tag);
    // Interrupted or short of memory: the entry stays in the ring, and `next` submits it again.
    io_uring_submit(&ring_);
  }

  Done next() override {
    io_uring_cqe* entry = nullptr;
    while (io_uring_peek_cqe(&ring_, &entry) != 0) {
      const int error = io_uring_submit_and_wait(&ring_, 1);
      LOCKSTEP_ASSERT(error >= 0 || error == -EINTR || error == -EAGAIN || error == -EBUSY,
                      "a ring with requests in flight gives one back");
    }
    const Done done{io_uring_cqe_get_data64(entry), entry->res};
    io_uring_cqe_seen(&ring_, entry);
    return done;
  }

  const char* name() const override { return "io_uring"; }

 private:
  int descriptor_;
  bool open_ = false;
  io_uring ring_{};
};

}  // namespace

std::unique_ptr<BlockIo> uring_io(int descriptor, int in_flight) {
  auto io = std::make_unique<UringIo>(descriptor);
  if (!io->open(in_flight)) return nullptr;
  return io;
}

}  // namespace lockstep::files::detail
