#include "lockstep/base/shallow_json.h"

#include <cstddef>

namespace lockstep::base {

std::string_view shallow_json(std::string_view text) {
  constexpr int kMostDepth = 100;
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMostDepth) return text.substr(0, i);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return text;
}

}  // namespace lockstep::base
