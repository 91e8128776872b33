/// One source, a clone per instruction set, chosen once when the program starts.
#pragma once

// A sanitizer's runtime is not there yet when clones are chosen, so its builds get plain code. The
// bits are the same: every kernel is exact per element, and contraction is off.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(LOCKSTEP_SANITIZED)
#define LOCKSTEP_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define LOCKSTEP_CLONES
#endif
