#include "lockstep/launch/rank_environment.h"

#include <unistd.h>

#include <array>
#include <initializer_list>
#include <map>
#include <string_view>

#include "lockstep/base/units.h"
#include "lockstep/launch/blas_core.h"

namespace lockstep::launch {
namespace {

using Variables = std::map<std::string, std::string, std::less<>>;

/// What an outer job may have set for a rank of its own.
constexpr std::array kOfOneRank = {"LOCKSTEP_RANK",
                                   "LOCKSTEP_REGION_FD",
                                   "LOCKSTEP_CONSOLE_FD",
                                   "LOCKSTEP_LOCAL_RANK",
                                   "LOCKSTEP_LOCAL_SIZE",
                                   "LOCKSTEP_NODE_RANK",
                                   "LOCKSTEP_JOB_ID",
                                   "LOCKSTEP_RESTART_COUNT",
                                   "RANK",
                                   "WORLD_SIZE",
                                   "LOCAL_RANK",
                                   "LOCAL_WORLD_SIZE",
                                   "GROUP_RANK",
                                   "ROLE_RANK",
                                   "ROLE_WORLD_SIZE",
                                   "MASTER_ADDR",
                                   "MASTER_PORT",
                                   "TORCHELASTIC_RESTART_COUNT",
                                   "TORCHELASTIC_RUN_ID",
                                   "TORCHELASTIC_MAX_RESTARTS",
                                   "TORCHELASTIC_USE_AGENT_STORE"};

void set_place(const RankPlace& place, Variables& variables) {
  const auto set = [&](int value, std::initializer_list<const char*> names) {
    for (const char* name : names) variables[name] = std::to_string(value);
  };
  set(place.rank, {"LOCKSTEP_RANK", "RANK", "ROLE_RANK"});
  set(place.ranks, {"WORLD_SIZE", "ROLE_WORLD_SIZE"});
  set(place.local_rank < 0 ? place.rank : place.local_rank, {"LOCKSTEP_LOCAL_RANK", "LOCAL_RANK"});
  set(place.local_ranks == 0 ? place.ranks : place.local_ranks,
      {"LOCKSTEP_LOCAL_SIZE", "LOCAL_WORLD_SIZE"});
  set(place.node_rank, {"LOCKSTEP_NODE_RANK", "GROUP_RANK"});
  set(place.restart_count, {"LOCKSTEP_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT"});
  set(place.max_restarts, {"TORCHELASTIC_MAX_RESTARTS"});
  variables["LOCKSTEP_JOB_ID"] = place.job_id;
  variables["TORCHELASTIC_RUN_ID"] = place.job_id;
}

}  // namespace

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
  Variables variables;
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
  if (!better_blas_core().empty()) variables.try_emplace("OPENBLAS_CORETYPE", better_blas_core());

  for (const char* name : kOfOneRank) variables.erase(name);
  variables.erase("LOCKSTEP_JOB_TOKEN");  // for launchers: programs write their environment to logs
  variables["LOCKSTEP_ENGINE"] = place.engine;
  variables["LOCKSTEP_WORLD_SIZE"] = std::to_string(place.ranks);
  variables["LOCKSTEP_TIMEOUT_S"] = base::exact(place.timeout_s);
  variables["LOCKSTEP_OVERSUBSCRIBED"] = place.oversubscribed ? "1" : "0";
  variables["LOCKSTEP_LOGGED"] = place.logged ? "1" : "0";
  if (place.region_fd >= 0) variables["LOCKSTEP_REGION_FD"] = std::to_string(place.region_fd);
  if (place.console_fd >= 0) variables["LOCKSTEP_CONSOLE_FD"] = std::to_string(place.console_fd);
  if (place.rank >= 0) set_place(place, variables);
  if (place.master_port > 0) {
    variables["MASTER_ADDR"] = place.master_host;
    variables["MASTER_PORT"] = std::to_string(place.master_port);
  }

  std::vector<std::string> environment;
  for (const auto& [name, value] : variables) environment.push_back(name + "=" + value);
  return environment;
}

}  // namespace lockstep::launch
