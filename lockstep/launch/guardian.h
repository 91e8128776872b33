/// A small process that outlives the launcher by a moment: ends what the ranks had started when the
/// launcher could not, because it was killed.
///
/// A rank gets SIGKILL from the system when its launcher dies; what the rank itself started (a
/// script's program, a data loader) does not. The guardian knows every rank's process group, and
/// kills the groups when the pipe from the launcher comes to its end. It holds nothing else open.
/// It is started after the ranks: a launcher that is killed before has none.
#pragma once

#include <sys/types.h>

#include <vector>

#include "lockstep/launch/descriptor.h"

namespace lockstep::launch {

class Guardian {
 public:
  /// Starts it over these groups. Without one (no more processes) jobs run as well, so that is no
  /// error.
  explicit Guardian(const std::vector<pid_t>& groups);
  /// All groups must have been forgotten; waits for the guardian to leave.
  ~Guardian();
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  /// To be called while the group's leader is not reaped: its number is then nobody else's.
  void forget(pid_t group);

 private:
  void tell(pid_t word);

  pid_t pid_ = -1;
  Descriptor pipe_;  // a group to watch is written as its number, one to forget as minus that
};

}  // namespace lockstep::launch
