/// The engines there are, by name: what carries tensors between ranks (docs/concepts/engines.md).
#pragma once

#include <array>
#include <string_view>

namespace lockstep::plan {

struct EngineName {
  std::string_view name;
  /// Its ranks send each other messages, and every collective is a plan; else they use each other's
  /// memory.
  bool sends_messages;
};

inline constexpr std::array<EngineName, 4> kEngines = {
    {{"shm", false}, {"threads", false}, {"mpi", true}, {"gloo", true}}};

constexpr bool sends_messages(std::string_view engine) {
  for (const EngineName& known : kEngines) {
    if (known.name == engine) return known.sends_messages;
  }
  return false;
}

}  // namespace lockstep::plan
