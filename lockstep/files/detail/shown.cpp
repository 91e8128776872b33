#include "lockstep/files/detail/shown.h"

#include <nlohmann/json.hpp>

#include "lockstep/base/str.h"

namespace lockstep::files::detail {

std::string shown(std::string_view text) {
  constexpr size_t kMost = 120;
  constexpr auto kReplace = nlohmann::json::error_handler_t::replace;
  const nlohmann::json start = std::string(text.substr(0, kMost));
  const std::string escaped = start.dump(-1, ' ', /*ensure_ascii=*/false, kReplace);
  if (text.size() <= kMost) return escaped;
  return base::str(escaped, "... (", text.size(), " bytes)");
}

}  // namespace lockstep::files::detail
