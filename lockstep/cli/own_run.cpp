#include "lockstep/cli/own_run.h"

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/cli/run_folder.h"
#include "lockstep/files/atomic_file.h"
#include "lockstep/launch/place.h"
#include "lockstep/launch/region_handover.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = "job";

bool is_of(const fs::path& folder, const std::string& job) {
  std::error_code error;
  if (!fs::is_regular_file(folder / kFile, error)) return false;
  try {
    return read_file((folder / kFile).string()) == job + "\n";
  } catch (const StateError&) {
    return false;  // another user's
  }
}

}  // namespace

std::string own_job() {
  return launch::key_of_all_starts(launch::place_from(launch::own_variable));
}

void remember_job(const std::string& folder, const std::string& job) {
  if (job.empty()) return;
  files::AtomicFile file((fs::path(folder) / kFile).string());
  file.write(job + "\n");
  file.commit();
}

std::string run_of_job(const plan::TrainConfig& config, const std::string& job) {
  if (job.empty() || launch::place_from(launch::own_variable).restart_count == 0) return "";
  std::string newest;
  fs::file_time_type when{};
  std::error_code error;
  for (fs::directory_iterator entry(config.run.dir, error), end; !error && entry != end;
       entry.increment(error)) {
    if (!is_of(entry->path(), job)) continue;
    std::error_code unknown;
    const auto made = fs::last_write_time(entry->path() / kFile, unknown);
    if (!newest.empty() && made <= when) continue;
    newest = entry->path().string();
    when = made;
  }
  return newest;
}

}  // namespace lockstep::cli
