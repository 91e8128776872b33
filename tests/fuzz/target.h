/// Readers of files that nobody vouches for, as functions of any bytes.
///
/// A target is a file of its own, NAME.cpp, with seeds in corpus/NAME/. It passes the bytes to a
/// reader, takes the error that the reader documents, and checks what the reader says of bytes that
/// it accepts. Anything else that leaves it is a fault.
///
/// Two programs run the same function: fuzz_test over the seeds and thousands of changes of them,
/// in seconds and with any compiler; and fuzz_NAME under libFuzzer (`make fuzz`).
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::fuzz {

struct Target {
  const char* name;
  void (*run)(std::string_view bytes);
};

/// Those of the program, by name.
std::vector<Target> targets();
bool add(Target target);

/// Ends the run unless `holds`: `what` was promised of accepted bytes.
inline void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

}  // namespace lockstep::fuzz

#define LOCKSTEP_FUZZ_TARGET(target_name)                              \
  static void target_name(std::string_view bytes);                     \
  [[maybe_unused]] static const bool target_name##_is_there =          \
      lockstep::fuzz::add({.name = #target_name, .run = target_name}); \
  static void target_name(std::string_view bytes)
