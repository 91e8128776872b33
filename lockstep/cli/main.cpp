// lockstep: the command. It never loads LibTorch; lockstep-worker does.

#include <cstdio>
#include <exception>
#include <new>

#include "lockstep/base/error.h"
#include "lockstep/cli/command.h"

int main(int argc, char** argv) {
  try {
    return lockstep::cli::run_command({argv + 1, argv + argc});
  } catch (const lockstep::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  } catch (const std::bad_alloc&) {
    const lockstep::OutOfMemory error("lockstep: this machine has no memory left.");
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lockstep: %s\n", error.what());
    return 1;
  }
}
