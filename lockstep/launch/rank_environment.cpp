#include "lockstep/launch/rank_environment.h"

#include <unistd.h>

#include <map>
#include <string_view>

#include "lockstep/base/units.h"

namespace lockstep::launch {

const char* best_cpu_capability() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("fma")) {
    return "avx512";
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "avx2";
#endif
  return "default";
}

std::vector<std::string> rank_environment(const RankPlace& place) {
  std::map<std::string, std::string, std::less<>> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }

  // The order and rounding of sums inside a call may not depend on how a rank was started.
  variables.try_emplace("OMP_NUM_THREADS", "1");
  variables.try_emplace("OPENBLAS_NUM_THREADS", "1");
  variables.try_emplace("ATEN_CPU_CAPABILITY", best_cpu_capability());

  for (const char* name : {"LOCKSTEP_RANK", "LOCKSTEP_REGION_FD", "LOCKSTEP_CONSOLE_FD"}) {
    variables.erase(name);
  }
  variables["LOCKSTEP_ENGINE"] = place.engine;
  variables["LOCKSTEP_WORLD_SIZE"] = std::to_string(place.ranks);
  variables["LOCKSTEP_TIMEOUT_S"] = base::exact(place.timeout_s);
  variables["LOCKSTEP_OVERSUBSCRIBED"] = place.oversubscribed ? "1" : "0";
  variables["LOCKSTEP_LOGGED"] = place.logged ? "1" : "0";
  if (place.rank >= 0) variables["LOCKSTEP_RANK"] = std::to_string(place.rank);
  if (place.region_fd >= 0) variables["LOCKSTEP_REGION_FD"] = std::to_string(place.region_fd);
  if (place.console_fd >= 0) variables["LOCKSTEP_CONSOLE_FD"] = std::to_string(place.console_fd);

  std::vector<std::string> environment;
  for (const auto& [name, value] : variables) environment.push_back(name + "=" + value);
  return environment;
}

}  // namespace lockstep::launch
