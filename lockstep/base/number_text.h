/// Numbers as text with a decimal point, whatever the process's locale says.
#pragma once

#include <string>

namespace lockstep::base {

/// 3.14159, 2 -> "3.14"; "nan" and "inf" as they are.
std::string fixed_text(double value, int digits);

/// 0.000946, 2 -> "9.46e-04".
std::string scientific_text(double value, int digits);

}  // namespace lockstep::base
