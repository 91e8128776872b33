/// Token files for tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "tests/files/on_disk.h"

namespace lockstep::input {

using on_disk::put;

inline void put_tokens(const std::string& path, const std::vector<uint16_t>& ids) {
  put(path, std::string(reinterpret_cast<const char*>(ids.data()), 2 * ids.size()));
}

/// The message of the EnvironmentError that `action` throws, or an empty string.
template <class Action>
std::string environment_error(Action action) {
  return on_disk::message_of<EnvironmentError>(action);
}

}  // namespace lockstep::input
