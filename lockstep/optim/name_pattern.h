/// Patterns of parameters' names: `*` stands for any characters, dots too.
#pragma once

#include <string_view>

namespace lockstep::optim {

bool name_fits(std::string_view pattern, std::string_view name);

}  // namespace lockstep::optim
