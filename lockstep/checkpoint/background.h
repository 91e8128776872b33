/// One piece of work on a thread of its own (`ls-save`), which gives way to threads that compute.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace lockstep::checkpoints {

class Background {
 public:
  Background() = default;
  /// Waits for the work, unless it was abandoned.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  /// Starts `work`, which must own what it uses. None may be under way.
  void start(std::function<void()> work);
  /// Until it is done; false: it was not within `timeout`. Without work true at once.
  bool wait_for(std::chrono::duration<double> timeout);
  bool busy() const;
  /// What the last work threw; empty: it ended well, or there was none. Once done.
  std::string failure() const;
  /// Lets work that does not end go its own way: the thread and what it owns are lost, the process
  /// is not held up by them.
  void abandon();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace lockstep::checkpoints
