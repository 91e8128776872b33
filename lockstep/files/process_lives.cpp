#include "lockstep/files/process_lives.h"

#include <signal.h>

#include <fstream>
#include <string>

#include "lockstep/base/str.h"

namespace lockstep::files {

bool process_lives(pid_t process) {
  if (process <= 0 || kill(process, 0) != 0) return false;
  // "PID (NAME) STATE ...": the name may hold anything, the last bracket ends it.
  std::ifstream in(base::str("/proc/", process, "/stat"));
  std::string text;
  std::getline(in, text);
  const size_t end = text.rfind(')');
  if (end == std::string::npos || end + 2 >= text.size()) return true;
  const char state = text[end + 2];
  return state != 'Z' && state != 'X';
}

}  // namespace lockstep::files
