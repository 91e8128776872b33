/// Element types and reduction operators of the collectives. No LibTorch here: bytes only.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::net {

enum class DType : uint8_t { f32, f64, f16, bf16, i8, u8, i16, i32, i64, boolean };
/// average: the sum over the ranks by their number, of floating-point types. Divided where the sum
/// is still wide, so the average of values that fit into fp16 does. No other type has it: of
/// integers it would be neither exact nor an integer.
enum class ReduceOp : uint8_t { sum, max, min, average };
enum class Operation : uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  all_to_all,
  barrier,
  subgroup,
  send,
  recv,
  gather_text,
};
inline constexpr int kOperations = 10;

int64_t width_of(DType type);  // bytes per element
bool is_floating(DType type);
const char* name_of(DType type);
const char* name_of(ReduceOp op);
const char* name_of(Operation op);

}  // namespace lockstep::net
