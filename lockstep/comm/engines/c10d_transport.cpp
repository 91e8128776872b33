#include "lockstep/comm/engines/c10d_transport.h"

#include <ATen/ops/from_blob.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "lockstep/base/str.h"
#include "lockstep/comm/engines/no_sigpipe.h"

namespace lockstep {
namespace {

constexpr int kTag = 0;  // messages of a pair of ranks keep their order
constexpr std::chrono::microseconds kNap{100};
// Half a second or more. After each the watchdog looks, however little this rank gets to run.
constexpr int kNapsForTheCause = 5000;
// The group's watchdog ends waits; Gloo's own timeout would close all connections of the group.
constexpr std::chrono::hours kLongerThanAnyWait{24 * 365};

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return first_line(known.what());
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

}  // namespace

/// Waits for the works of one peer, one after the other.
class C10dTransport::Waiter {
 public:
  explicit Waiter(int peer) : thread_([this](const std::stop_token& stop) { run(stop); }) {
    pthread_setname_np(thread_.native_handle(), base::str("ls-gloo-", peer).c_str());
  }

  void wait_for(c10::intrusive_ptr<c10d::Work> work) {
    {
      const std::lock_guard lock(mutex_);
      works_.push_back(std::move(work));
    }
    changed_.notify_one();
  }

 private:
  void run(const std::stop_token& stop) {
    for (;;) {
      c10::intrusive_ptr<c10d::Work> work;
      {
        std::unique_lock lock(mutex_);
        if (!changed_.wait(lock, stop, [this] { return !works_.empty(); })) return;
        work = std::move(works_.front());
        works_.pop_front();
      }
      try {
        work->wait(kLongerThanAnyWait);
      } catch (const std::exception&) {
        // The work keeps it, and progress() asks the work.
      }
    }
  }

  std::mutex mutex_;  // guards works_
  std::condition_variable_any changed_;
  std::deque<c10::intrusive_ptr<c10d::Work>> works_;
  std::jthread thread_;  // last: it uses the others
};

C10dTransport::C10dTransport(std::string engine, c10::intrusive_ptr<C10dGroup> group)
    : engine_(std::move(engine)),
      group_(std::move(group)),
      waiters_(static_cast<size_t>(group_->getSize())) {}

C10dTransport::~C10dTransport() { abandon(); }

void C10dTransport::send(int peer, const void* data, int64_t bytes) {
  // Only read; tensors know no const.
  start(peer, Direction::send, const_cast<void*>(data), bytes);
}

void C10dTransport::receive(int peer, void* data, int64_t bytes) {
  start(peer, Direction::receive, data, bytes);
}

void C10dTransport::start(int peer, Direction direction, void* data, int64_t bytes) {
  if (bytes == 0) return;
  std::vector<at::Tensor> tensors = {at::from_blob(data, {bytes}, at::kByte)};
  Transfer transfer{peer, direction, bytes, {}};
  const NoSigpipe guard;
  try {
    transfer.work = direction == Direction::send ? group_->send(tensors, peer, kTag)
                                                 : group_->recv(tensors, peer, kTag);
    waiter_of(peer).wait_for(transfer.work);
  } catch (const std::exception& error) {  // the connection is known to be closed
    note_failure(peer, first_line(error.what()));
  }
  open_.push_back(std::move(transfer));
}

C10dTransport::Waiter& C10dTransport::waiter_of(int peer) {
  auto& waiter = waiters_[static_cast<size_t>(peer)];
  if (!waiter) waiter = std::make_unique<Waiter>(peer);
  return *waiter;
}

bool C10dTransport::progress() {
  std::erase_if(open_, [this](const Transfer& transfer) {
    if (!is_complete(transfer)) return false;
    ++completions_;
    if (transfer.direction == Direction::receive) bytes_received_ += transfer.bytes;
    return true;
  });
  if (failure_ && failure_->naps >= kNapsForTheCause) {
    throw std::runtime_error(
        base::str("engine ", engine_, " lost rank ", failure_->peer, ": ", failure_->what));
  }
  return open_.empty();
}

bool C10dTransport::is_complete(const Transfer& transfer) {
  if (!transfer.work || !transfer.work->isCompleted()) return false;
  const std::exception_ptr error = transfer.work->exception();
  if (error) note_failure(transfer.peer, text_of(error));
  return !error;
}

void C10dTransport::note_failure(int peer, const std::string& what) {
  if (!failure_) failure_ = Failure{peer, what};
}

bool C10dTransport::awaits(int peer) const {
  return std::any_of(open_.begin(), open_.end(),
                     [peer](const Transfer& transfer) { return transfer.peer == peer; });
}

void C10dTransport::nap() {
  if (failure_) ++failure_->naps;
  std::this_thread::sleep_for(kNap);
}

void C10dTransport::abandon() {
  for (const Transfer& transfer : open_) {
    if (transfer.work) transfer.work->abort();  // ends the wait, not the transfer
  }
  for (auto& waiter : waiters_) waiter.reset();
  open_.clear();
  group_.reset();  // closes the connections: nothing reads or writes the callers' memory now
}

}  // namespace lockstep
