/// Sizes that Lockstep's kernels cut their work by: constants, so that no layout, memory or timing
/// changes what is computed. Each is a part of the kernel set's name (fused/product.h).
#pragma once

#include <cstdint>

namespace lockstep::plan {

inline constexpr int64_t kQueryBlock = 64;     // queries of attention at a time
inline constexpr int64_t kLossRows = 512;      // tokens whose logits there are at a time
inline constexpr int64_t kLossColumns = 1024;  // token ids of a tile of logits

}  // namespace lockstep::plan
