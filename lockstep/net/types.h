/// Element types and reduction operators of the collectives. No LibTorch here: bytes only.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::net {

enum class DType : uint8_t { f32, f64, f16, bf16, i8, u8, i16, i32, i64, boolean };
enum class ReduceOp : uint8_t { sum, max, min };
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
const char* name_of(DType type);
const char* name_of(ReduceOp op);
const char* name_of(Operation op);

}  // namespace lockstep::net
