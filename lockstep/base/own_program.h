/// Where the program lies that this process runs.
#pragma once

#include <string>

namespace lockstep::base {

/// Its file. Throws EnvironmentError where /proc does not tell.
std::string own_program();
/// The folder of that file.
std::string own_folder();

}  // namespace lockstep::base
