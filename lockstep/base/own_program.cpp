#include "lockstep/base/own_program.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::base {

std::string own_program() {
  std::string path(4096, '\0');
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
  if (length <= 0) {
    throw EnvironmentError(
        str("cannot read /proc/self/exe: ", std::strerror(errno), ".\n  Is /proc mounted?"));
  }
  path.resize(static_cast<size_t>(length));
  return path;
}

std::string own_folder() {
  const std::string path = own_program();
  return path.substr(0, path.rfind('/'));
}

}  // namespace lockstep::base
