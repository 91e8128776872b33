/// Invariants of our own. `LOCKSTEP_ASSERT(condition, reason)` stays on in every build type: NDEBUG
/// is always defined here, because the packaged LibTorch is built with it.
#pragma once

namespace lockstep::base {

/// Prints where and why, then aborts.
[[noreturn]] void assertion_failed(const char* file, int line, const char* condition,
                                   const char* reason);

}  // namespace lockstep::base

#define LOCKSTEP_ASSERT(condition, reason) \
  ((condition) ? void(0)                   \
               : ::lockstep::base::assertion_failed(__FILE__, __LINE__, #condition, reason))
