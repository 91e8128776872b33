#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "lockstep/files/detail/block_io.h"

namespace lockstep::files::detail {
namespace {

constexpr int kThreads = 2;  // one may read while the other writes

class ThreadIo final : public BlockIo {
 public:
  explicit ThreadIo(int descriptor) : descriptor_(descriptor) {
    for (int i = 0; i < kThreads; ++i) threads_.emplace_back([this] { work(); });
  }

  ~ThreadIo() override {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    asked_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void start(const Request& request) override {
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(request);
    }
    asked_.notify_one();
  }

  Done next() override {
    std::unique_lock lock(mutex_);
    finished_.wait(lock, [this] { return !done_.empty(); });
    const Done done = done_.front();
    done_.pop_front();
    return done;
  }

  const char* name() const override { return "two threads"; }

 private:
  void work() {
    pthread_setname_np(pthread_self(), "ls-offload");
    std::unique_lock lock(mutex_);
    for (;;) {
      asked_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      const Request request = waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      const auto bytes = static_cast<size_t>(request.bytes);
      const ssize_t result = request.write
                                 ? pwrite(descriptor_, request.data, bytes, request.offset)
                                 : pread(descriptor_, request.data, bytes, request.offset);
      const int64_t outcome = result < 0 ? -errno : result;
      lock.lock();
      done_.push_back({request.tag, outcome});
      finished_.notify_one();
    }
  }

  int descriptor_;
  std::mutex mutex_;  // guards all below
  std::condition_variable asked_;
  std::condition_variable finished_;
  std::deque<Request> waiting_;  // oldest first
  std::deque<Done> done_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<BlockIo> thread_io(int descriptor) {
  return std::make_unique<ThreadIo>(descriptor);
}

}  // namespace lockstep::files::detail
