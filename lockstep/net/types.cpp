#include "lockstep/net/types.h"

#include <array>

namespace lockstep::net {

int64_t width_of(DType type) {
  constexpr std::array<int64_t, 10> kWidths = {4, 8, 2, 2, 1, 1, 2, 4, 8, 1};
  return kWidths[static_cast<size_t>(type)];
}

bool is_floating(DType type) {
  return type == DType::f32 || type == DType::f64 || type == DType::f16 || type == DType::bf16;
}

const char* name_of(DType type) {
  constexpr std::array<const char*, 10> kNames = {"float32", "float64", "float16", "bfloat16",
                                                  "int8",    "uint8",   "int16",   "int32",
                                                  "int64",   "bool"};
  return kNames[static_cast<size_t>(type)];
}

const char* name_of(ReduceOp op) {
  constexpr std::array<const char*, 4> kNames = {"sum", "max", "min", "average"};
  return kNames[static_cast<size_t>(op)];
}

const char* name_of(Operation op) {
  constexpr std::array<const char*, kOperations> kNames = {
      "all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all",
      "barrier",    "subgroup",       "send",       "recv",      "gather_text"};
  return kNames[static_cast<size_t>(op)];
}

}  // namespace lockstep::net
