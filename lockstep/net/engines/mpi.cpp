#include "lockstep/net/engines/mpi.h"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/own_program.h"
#include "lockstep/base/str.h"

namespace lockstep::net {
namespace {

const char* name_of(Mpi mpi) { return mpi == Mpi::open_mpi ? "Open MPI" : "MPICH"; }

const char* file_of(Mpi mpi) {
  return mpi == Mpi::open_mpi ? "lockstep-openmpi.so" : "lockstep-mpich.so";
}

}  // namespace

std::string mpi_plugin(Mpi mpi) {
  std::vector<std::string> folders;
  if (const char* path = std::getenv("LOCKSTEP_PLUGIN_PATH")) folders.emplace_back(path);
  folders.push_back(base::own_folder());
  folders.push_back(base::own_folder() + "/../lib/lockstep");
  for (const std::string& folder : folders) {
    const std::string file = folder + "/" + file_of(mpi);
    if (access(file.c_str(), R_OK) == 0) return file;
  }
  return "";
}

std::shared_ptr<MessageEngine> load_mpi_engine(Mpi mpi) {
  const std::string file = mpi_plugin(mpi);
  if (file.empty()) {
    throw EnvironmentError(
        base::str("engine mpi: there is no plug-in for ", name_of(mpi), " (", file_of(mpi),
                  ").\n  It is built where CMake finds that MPI: install lib",
                  mpi == Mpi::open_mpi ? "openmpi" : "mpich", "-dev and build again."));
  }
  // Never closed: MPI keeps threads and handlers of its own. Global, since Open MPI loads parts of
  // itself that look for it.
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    throw EnvironmentError(base::str("engine mpi: ", dlerror(), "."));
  }
  using Make = MessageEngine* (*)(char* refusal, int size);
  const auto make = reinterpret_cast<Make>(dlsym(library, "lockstep_make_engine"));
  if (make == nullptr) {
    throw EnvironmentError(base::str("engine mpi: ", file, " is none of ours: ", dlerror(), "."));
  }
  std::array<char, 256> refusal{};
  MessageEngine* const engine = make(refusal.data(), static_cast<int>(refusal.size()));
  if (engine == nullptr) {
    throw EnvironmentError(base::str("engine mpi: ", refusal.data()));
  }
  return std::shared_ptr<MessageEngine>(engine);
}

}  // namespace lockstep::net
