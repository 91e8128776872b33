/// A word that one rank raises and its peers wait on, across processes.
///
/// Waiting spins briefly, then yields, then sleeps on a futex in bounded slices, so that an abort
/// or a dead peer is noticed although nobody wakes us. Raising costs a store and a load unless
/// somebody sleeps.
#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>

namespace lockstep::net {

inline void cpu_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

struct Signal {
  std::atomic<uint32_t> value{0};
  std::atomic<uint32_t> sleepers{0};

  /// Counters wrap, so "reached" is a signed distance.
  bool reached(uint32_t target) const {
    return static_cast<int32_t>(value.load(std::memory_order_acquire) - target) >= 0;
  }

  /// Publishes everything written before it, and wakes who sleeps.
  void raise(uint32_t to) {
    // Sequentially consistent, as in `sleep`: either the sleeper sees the new value or we see it.
    value.store(to, std::memory_order_seq_cst);
    if (sleepers.load(std::memory_order_seq_cst) != 0) wake();
  }

  /// Sleeps until raised, at most `slice`; may return early.
  void sleep(uint32_t target, std::chrono::microseconds slice);
  void wake();
};

/// For a rank that waits for any of several signals: whoever raises one of them rings.
struct Bell {
  std::atomic<uint32_t> rings{0};
  std::atomic<uint32_t> sleepers{0};

  void ring() {
    // After the seq_cst store of Signal::raise: either the sleeper sees what was raised or we see
    // it.
    if (sleepers.load(std::memory_order_seq_cst) != 0) wake();
  }

  /// Sleeps until rung, at most `slice`, unless there is something to do already.
  template <class Ready>
  void sleep(std::chrono::microseconds slice, Ready&& ready) {
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    const uint32_t seen = rings.load(std::memory_order_seq_cst);
    if (!ready()) wait_while(seen, slice);
    sleepers.fetch_sub(1, std::memory_order_seq_cst);
  }

 private:
  void wake();
  void wait_while(uint32_t seen, std::chrono::microseconds slice);
};

/// How patiently a rank spins before it gives its core away.
struct Patience {
  int spins = 2000;  // about 50 us
  int yields = 20;
  static Patience oversubscribed() { return {0, 30}; }
};

/// Returns when `signal` has reached `target`. `check` is called from time to time once the wait is
/// no longer short; it throws to end the wait.
template <class Check>
void wait_until(Signal& signal, uint32_t target, const Patience& patience, Check&& check) {
  for (int i = 0; i <= patience.spins; ++i) {
    if (signal.reached(target)) return;
    cpu_pause();
  }
  for (int i = 0; i < patience.yields; ++i) {
    sched_yield();
    if (signal.reached(target)) return;
  }
  std::chrono::microseconds slice{10'000};
  while (!signal.reached(target)) {
    check();
    signal.sleep(target, slice);
    if (slice < std::chrono::microseconds{80'000}) slice *= 2;
  }
}

}  // namespace lockstep::net
