#include "lockstep/checkpoint/background.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "lockstep/base/assert.h"

namespace lockstep::checkpoints {

/// Shared with the thread, which may outlive its owner.
struct Background::State {
  mutable std::mutex mutex;  // guards done and failure
  std::condition_variable ended;
  bool done = false;
  std::string failure;
  std::thread thread;
};

namespace {

/// A core that has something to compute computes; who waits for the work gives it the whole core.
void give_way() {
  constexpr int kNice = 15;
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kNice);
}

}  // namespace

Background::~Background() {
  if (state_ && state_->thread.joinable()) state_->thread.join();
}

void Background::start(std::function<void()> work) {
  LOCKSTEP_ASSERT(!busy(), "one piece of work at a time");
  if (state_ && state_->thread.joinable()) state_->thread.join();
  state_ = std::make_shared<State>();
  state_->thread = std::thread([state = state_, work = std::move(work)] {
    pthread_setname_np(pthread_self(), "ls-save");
    give_way();
    std::string failure;
    try {
      work();
    } catch (const std::exception& error) {
      failure = error.what();
    }
    const std::lock_guard lock(state->mutex);
    state->failure = std::move(failure);
    state->done = true;
    state->ended.notify_all();
  });
}

bool Background::wait_for(std::chrono::duration<double> timeout) {
  if (!state_) return true;
  std::unique_lock lock(state_->mutex);
  return state_->ended.wait_for(lock, timeout, [this] { return state_->done; });
}

bool Background::busy() const {
  if (!state_) return false;
  const std::lock_guard lock(state_->mutex);
  return !state_->done;
}

std::string Background::failure() const {
  if (!state_) return {};
  const std::lock_guard lock(state_->mutex);
  return state_->failure;
}

void Background::abandon() {
  if (!state_) return;
  state_->thread.detach();
  state_.reset();
}

}  // namespace lockstep::checkpoints
