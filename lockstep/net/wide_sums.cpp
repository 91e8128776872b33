#include "lockstep/net/wide_sums.h"

#include "lockstep/base/assert.h"
#include "lockstep/base/half.h"

namespace lockstep::net {
namespace {

using base::BFloat16;
using base::Float16;

template <class T>
void widen_all(const void* from, float* to, int64_t count) {
  const T* values = static_cast<const T*>(from);
  for (int64_t i = 0; i < count; ++i) to[i] = widen(values[i]);
}

template <class T>
void divide_all(const void* from, int divisor, void* to, int64_t count) {
  const T* values = static_cast<const T*>(from);
  for (int64_t i = 0; i < count; ++i) static_cast<T*>(to)[i] = values[i] / static_cast<T>(divisor);
}

template <class T>
void divide_and_narrow(const void* from, int divisor, void* to, int64_t count) {
  const float* values = static_cast<const float*>(from);
  for (int64_t i = 0; i < count; ++i) {
    narrow(values[i] / static_cast<float>(divisor), static_cast<T*>(to)[i]);
  }
}

}  // namespace

void widen(DType type, const void* from, float* to, int64_t count) {
  LOCKSTEP_ASSERT(type == DType::f16 || type == DType::bf16, "only short floats are widened");
  if (type == DType::f16) return widen_all<Float16>(from, to, count);
  widen_all<BFloat16>(from, to, count);
}

void divide(DType wide, const void* from, int divisor, DType type, void* to, int64_t count) {
  if (wide == DType::f64) return divide_all<double>(from, divisor, to, count);
  LOCKSTEP_ASSERT(wide == DType::f32, "a sum is divided in fp32 or fp64");
  if (type == DType::f16) return divide_and_narrow<Float16>(from, divisor, to, count);
  if (type == DType::bf16) return divide_and_narrow<BFloat16>(from, divisor, to, count);
  divide_all<float>(from, divisor, to, count);
}

}  // namespace lockstep::net
