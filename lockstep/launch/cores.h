/// The cores that ranks may run on.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launch {

/// The cores that this process may use, in rising order.
std::vector<int> allowed_cores();

/// The core that each of `ranks` ranks of this host is bound to, by rank: neighbours in rank sit
/// near each other, and no two on one physical core while another is free (plan::place_ranks).
/// Throws UsageError: more ranks than allowed cores.
std::vector<int> cores_of_ranks(int ranks);

/// How many cores' worth of time the control group of this process grants; nothing if there is no
/// limit.
std::optional<double> granted_cores();

/// How many ranks run at full speed at once: the allowed cores, or what is granted of them.
int cores_at_full_speed();

/// "150000 100000" -> 1.5: cgroup v2's cpu.max. Nothing for "max 100000" and for what is no limit.
std::optional<double> cores_of_limit(const std::string& cpu_max);

}  // namespace lockstep::launch
