/// For tests of crashes: a process that writes files passes points, and one of them can be made its
/// last.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace lockstep::files {

/// How many points are left until the process kills itself; negative: it does not.
inline std::atomic<int> write_points_left = -1;

/// Something has become, or is about to become, durable or visible.
inline void pass_write_point() {
  if (write_points_left.load(std::memory_order_relaxed) < 0) return;
  if (write_points_left.fetch_sub(1) == 0) kill(getpid(), SIGKILL);
}

}  // namespace lockstep::files
