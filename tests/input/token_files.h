/// Token files for tests.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::input {

inline void put(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), std::ssize(bytes));
}

inline void put_tokens(const std::string& path, const std::vector<uint16_t>& ids) {
  put(path, std::string(reinterpret_cast<const char*>(ids.data()), 2 * ids.size()));
}

/// The message of the EnvironmentError that `action` throws, or an empty string.
template <class Action>
std::string environment_error(Action action) {
  try {
    action();
  } catch (const EnvironmentError& error) {
    return error.what();
  }
  return "";
}

}  // namespace lockstep::input
