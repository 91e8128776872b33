/// Whether a process may still write: who finds its unfinished files asks.
#pragma once

#include <sys/types.h>

namespace lockstep::files {

/// False for one that has ended, waited for or not.
bool process_lives(pid_t process);

}  // namespace lockstep::files
