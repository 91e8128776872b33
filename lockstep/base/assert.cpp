#include "lockstep/base/assert.h"

#include <cstdio>
#include <cstdlib>

namespace lockstep::base {

void assertion_failed(const char* file, int line, const char* condition, const char* reason) {
  std::fprintf(stderr, "lockstep: broken invariant at %s:%d: %s\n  %s\n", file, line, reason,
               condition);
  std::abort();
}

}  // namespace lockstep::base
