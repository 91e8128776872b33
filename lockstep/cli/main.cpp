// lockstep: the command. It never loads LibTorch; lockstep-worker does.

#include <fcntl.h>

#include "lockstep/cli/command.h"

namespace {

/// A standard descriptor that is closed would go to the next thing that is opened, and what is
/// printed would land there. Open for reading only, a write still fails, and is reported.
void reserve_standard_descriptors() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) < 0) return;
  }
}

}  // namespace

int main(int argc, char** argv) {
  reserve_standard_descriptors();
  return lockstep::cli::run_program({argv + 1, argv + argc});
}
