#include "lockstep/worker/resume_from.h"

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/folder.h"
#include "lockstep/checkpoint/reader.h"

namespace lockstep::worker {

std::string resume_from(const std::string& run_folder, const plan::TrainConfig& config,
                        const std::function<void(const std::string&)>& say) {
  const std::string& resume = config.run.resume;
  if (resume == "never") return "";
  const std::vector<checkpoints::Found> found = checkpoints::complete_checkpoints(run_folder);
  const std::string otherwise = resume == "auto" ? "" : resume;
  if (!config.checkpoint.fall_back) return found.empty() ? otherwise : found.front().folder;
  for (const checkpoints::Found& candidate : found) {
    try {
      checkpoints::Reader(candidate.folder).verify();
      return candidate.folder;
    } catch (const StateError& error) {
      say(base::str(error.what(), "\n  Going on from an older one (checkpoint.fall_back)."));
    }
  }
  if (!found.empty() && otherwise.empty()) {
    throw StateError(
        base::str("all ", found.size(), " checkpoints of ", run_folder,
                  " are damaged.\n  A new run begins at the start: lockstep train CONFIG, without "
                  "--resume."));
  }
  return otherwise;
}

}  // namespace lockstep::worker
