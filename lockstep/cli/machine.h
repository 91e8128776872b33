/// Facts about this machine, each looked at where it can be seen: nothing is assumed from a
/// version.
#pragma once

#include <string>
#include <vector>

#include "lockstep/plan/train_config.h"

namespace lockstep::cli {

enum class Verdict { ok, note, missing };

/// One thing that a run needs or profits from.
struct Finding {
  std::string name;
  Verdict verdict = Verdict::ok;  // note: slower or smaller without it; missing: no run without it
  std::string found;
  std::string help;  // what to do; empty where nothing is to be done
};

std::vector<Finding> inspect_machine();

/// Throws OutOfMemory if what `ranks` ranks hold all the time (plan::state_bytes_per_rank) is more
/// than this machine has: before anything starts.
void require_memory(const plan::TrainConfig& config, int ranks);

/// Bytes that programs could still take; -1 where the system does not say.
long long available_memory();

/// "7.8 GiB" of the text of /proc/meminfo and a key of it, in bytes; -1 if it is not there.
long long meminfo_bytes(const std::string& meminfo, const std::string& key);

/// The word in brackets of a kernel setting: "never" of "always [never]". Empty if there is none.
std::string chosen_word(const std::string& setting);

}  // namespace lockstep::cli
