/// Numbers that a GGUF file calls its types by.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string_view>

namespace lockstep::files::detail {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

inline constexpr uint32_t kGgufVersion = 3;
inline constexpr std::string_view kGgufMagic = "GGUF";

enum class GgufType : uint32_t { u32 = 4, i32 = 5, f32 = 6, boolean = 7, string = 8, array = 9 };

/// Of a tensor: the number of a dtype is its place.
struct GgufDtype {
  std::string_view name;
  int64_t bytes;
};
inline constexpr std::array<GgufDtype, 2> kGgufDtypes = {{{"F32", 4}, {"F16", 2}}};

inline constexpr int kGgufMostDims = 4;
inline constexpr size_t kGgufMostNameBytes = 64;

}  // namespace lockstep::files::detail
