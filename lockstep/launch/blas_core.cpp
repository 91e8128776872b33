#include "lockstep/launch/blas_core.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "lockstep/launch/rank_environment.h"

namespace lockstep::launch {
namespace {

/// What OpenBLAS falls back on, and its kernels for processors before AVX2.
constexpr std::array<std::string_view, 16> kOld = {
    "Prescott",    "Core2",        "Penryn",     "Dunnington", "Nehalem", "Atom",
    "Sandybridge", "Katmai",       "Coppermine", "Northwood",  "Banias",  "Athlon",
    "Opteron",     "Opteron_SSE3", "Barcelona",  "Bobcat"};

/// Empty if the library is not there.
std::string core_that_openblas_picks() {
  void* library = dlopen("libopenblas.so.0", RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return {};
  std::string core;
  using CoreName = char* (*)();
  if (auto* name = reinterpret_cast<CoreName>(dlsym(library, "openblas_get_corename"))) {
    core = name();
  }
  dlclose(library);
  return core;
}

}  // namespace

std::string better_blas_core(const std::string& chosen, bool avx2, bool avx512) {
  if (std::find(kOld.begin(), kOld.end(), chosen) == kOld.end()) return {};
  if (avx512) return "SkylakeX";
  return avx2 ? "Haswell" : "";
}

const std::string& better_blas_core() {
  static const std::string core = [] {
    const std::string_view widest = best_cpu_capability();
    if (widest == "default") return std::string();  // nothing better to ask for
    return better_blas_core(core_that_openblas_picks(), true, widest == "avx512");
  }();
  return core;
}

}  // namespace lockstep::launch
