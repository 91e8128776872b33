#include "lockstep/net/signal.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace lockstep::net {

void Signal::sleep(uint32_t target, std::chrono::microseconds slice) {
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  const uint32_t seen = value.load(std::memory_order_seq_cst);
  if (static_cast<int32_t>(seen - target) < 0) {
    const timespec limit{slice.count() / 1'000'000, (slice.count() % 1'000'000) * 1000};
    syscall(SYS_futex, &value, FUTEX_WAIT, seen, &limit, nullptr, 0);
  }
  sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

void Signal::wake() { syscall(SYS_futex, &value, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

}  // namespace lockstep::net
