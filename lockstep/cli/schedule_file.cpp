#include "lockstep/cli/schedule_file.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/plan/pipeline_schedule.h"

namespace lockstep::cli {

std::string read_schedule_table(const std::string& path) {
  const char* const start = "\n  `lockstep schedule --csv FILE` writes one to start from.";
  // A folder opens, too.
  if (!std::filesystem::is_regular_file(path)) {
    throw UsageError(base::str("there is no schedule ", path, ".", start));
  }
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) throw UsageError(base::str("the schedule ", path, " cannot be read."));
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) {
    throw UsageError(base::str("the schedule ", path, " is empty.", start));
  }
  return text;
}

void read_schedule(plan::TrainConfig& config) {
  const std::string& schedule = config.parallel.schedule;
  const std::vector<std::string>& known = plan::pipeline_schedules();
  if (std::find(known.begin(), known.end(), schedule) != known.end()) return;
  if (!schedule.ends_with(".csv")) {
    throw UsageError(base::str("parallel.schedule = \"", schedule, "\": one of ",
                               base::joined(known), ", or a file NAME.csv"));
  }
  config.schedule_csv = read_schedule_table(schedule);
}

}  // namespace lockstep::cli
