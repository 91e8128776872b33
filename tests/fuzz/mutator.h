/// Small changes of bytes, the same for the same numbers on every machine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::fuzz {

/// One of `seeds` with one to eight changes: bits, bytes, numbers of a file's kind, runs taken out,
/// doubled or brought from another seed. `number` of 0, 1, ... draws each another way.
std::string mutated(const std::vector<std::string>& seeds, std::string_view purpose,
                    uint64_t number);

}  // namespace lockstep::fuzz
