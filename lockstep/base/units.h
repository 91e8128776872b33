/// Sizes, counts and times as numbers with a name, and as a person reads them.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

inline constexpr int64_t KiB = 1024;
inline constexpr int64_t MiB = 1024 * KiB;
inline constexpr int64_t GiB = 1024 * MiB;

namespace base {

/// 842496 -> "842,496".
std::string with_commas(int64_t count);

/// 1572864 -> "1.5 MiB".
std::string bytes_text(int64_t bytes);

/// 75.3 -> "1:15"; 3725 -> "1:02:05".
std::string duration_text(double seconds);

/// A double printed so that it reads back exactly ("%.17g", locale independent).
std::string exact(double value);

}  // namespace base
}  // namespace lockstep
