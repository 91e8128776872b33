/// JSON of files that nobody vouches for.
#pragma once

#include <string_view>

namespace lockstep::base {

/// `text`, or what of it stands before the bracket that is the 101st within one another: a parser
/// then finds the end where it expects none, and says so. The JSON library reads any depth, but
/// what it does with a value (print it, in an error's message too) calls itself for each bracket,
/// and a file of a megabyte of them would end the process.
std::string_view shallow_json(std::string_view text);

}  // namespace lockstep::base
