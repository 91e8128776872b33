/// Element types of LibTorch as the byte layer knows them.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>

#include "lockstep/net/types.h"

namespace lockstep {

/// Nothing for types that no collective carries (complex, quantized).
std::optional<net::DType> dtype_of(at::ScalarType type);

}  // namespace lockstep
