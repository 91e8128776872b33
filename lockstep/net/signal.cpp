#include "lockstep/net/signal.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace lockstep::net {
namespace {

void futex_wait(std::atomic<uint32_t>& word, uint32_t seen, std::chrono::microseconds slice) {
  const timespec limit{slice.count() / 1'000'000, (slice.count() % 1'000'000) * 1000};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

void Signal::sleep(uint32_t target, std::chrono::microseconds slice) {
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  const uint32_t seen = value.load(std::memory_order_seq_cst);
  if (static_cast<int32_t>(seen - target) < 0) futex_wait(value, seen, slice);
  sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

void Signal::wake() { futex_wake(value); }

void Bell::wake() {
  rings.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(rings);
}

void Bell::wait_while(uint32_t seen, std::chrono::microseconds slice) {
  futex_wait(rings, seen, slice);
}

}  // namespace lockstep::net
