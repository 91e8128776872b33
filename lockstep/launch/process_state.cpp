#include "lockstep/launch/process_state.h"

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

#include "lockstep/base/str.h"

namespace lockstep::launch {
namespace {

/// The value of "KEY:\tvalue" in /proc/PID/status; empty if the process is gone.
std::string status_value(pid_t pid, const std::string& key) {
  std::ifstream status(base::str("/proc/", pid, "/status"));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key + ":")) return line.substr(line.find_first_not_of(":\t ", key.size()));
  }
  return "";
}

}  // namespace

bool is_stopped(pid_t pid) { return status_value(pid, "State").starts_with("T"); }

bool catches(pid_t pid, int signal) {
  const uint64_t caught = std::strtoull(status_value(pid, "SigCgt").c_str(), nullptr, 16);
  return (caught >> (signal - 1) & 1) != 0;
}

}  // namespace lockstep::launch
