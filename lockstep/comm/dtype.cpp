#include "lockstep/comm/dtype.h"

namespace lockstep {

std::optional<net::DType> dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return net::DType::f32;
    case at::kDouble:
      return net::DType::f64;
    case at::kHalf:
      return net::DType::f16;
    case at::kBFloat16:
      return net::DType::bf16;
    case at::kChar:
      return net::DType::i8;
    case at::kByte:
      return net::DType::u8;
    case at::kShort:
      return net::DType::i16;
    case at::kInt:
      return net::DType::i32;
    case at::kLong:
      return net::DType::i64;
    case at::kBool:
      return net::DType::boolean;
    default:
      return std::nullopt;
  }
}

}  // namespace lockstep
