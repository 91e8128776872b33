/// Text out of a file that is not trusted, as a message may show it.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::files::detail {

/// In quotes; control characters, and bytes that are no UTF-8, escaped, so that a terminal obeys
/// none of them; of long text the first bytes and how many there are.
std::string shown(std::string_view text);

}  // namespace lockstep::files::detail
