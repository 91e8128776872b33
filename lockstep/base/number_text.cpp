#include "lockstep/base/number_text.h"

#include <array>
#include <charconv>

namespace lockstep::base {
namespace {

std::string text_of(double value, std::chars_format format, int digits) {
  std::array<char, 512> text{};  // the largest double has 309 digits before the point
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value, format, digits);
  return {text.data(), end.ptr};
}

}  // namespace

std::string fixed_text(double value, int digits) {
  return text_of(value, std::chars_format::fixed, digits);
}

std::string scientific_text(double value, int digits) {
  return text_of(value, std::chars_format::scientific, digits);
}

}  // namespace lockstep::base
