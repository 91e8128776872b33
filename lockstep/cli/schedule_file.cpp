#include "lockstep/cli/schedule_file.h"

#include <algorithm>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/cli/run_folder.h"
#include "lockstep/plan/pipeline_schedule.h"

namespace lockstep::cli {

void read_schedule(plan::TrainConfig& config) {
  const std::string& schedule = config.parallel.schedule;
  const std::vector<std::string>& known = plan::pipeline_schedules();
  if (std::find(known.begin(), known.end(), schedule) != known.end()) return;
  if (!schedule.ends_with(".csv")) {
    throw UsageError(base::str("parallel.schedule = \"", schedule, "\": one of ",
                               base::joined(known), ", or a file NAME.csv"));
  }
  if (!std::filesystem::exists(schedule)) {
    throw EnvironmentError(
        base::str("parallel.schedule: there is no file ", schedule,
                  ".\n  `lockstep schedule --csv FILE` writes one to start from."));
  }
  config.schedule_csv = read_file(schedule);
  if (config.schedule_csv.find_first_not_of(" \t\r\n") == std::string::npos) {
    throw UsageError(base::str(schedule,
                               " is empty.\n  `lockstep schedule --csv FILE` writes a "
                               "schedule to start from."));
  }
}

}  // namespace lockstep::cli
