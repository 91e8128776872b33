#include "lockstep/train/profile_report.h"

#include <algorithm>
#include <map>

#include "lockstep/base/number_text.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/files/line_file.h"

namespace lockstep {
namespace {

using torch_inside::kPhaseNames;
using torch_inside::Phase;
using torch_inside::ProfileRow;

std::string left(std::string text, size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

std::string right(const std::string& text, size_t width) {
  return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
}

/// The columns of a row, as a step's mean.
struct Line {
  std::string name;
  double forward = 0;   // seconds
  double backward = 0;  // seconds
  double flops = 0;
  double bytes = 0;
  double calls = 0;

  double seconds() const { return forward + backward; }
  void add(const ProfileRow& row, int64_t steps) {
    const auto each = static_cast<double>(steps);
    (row.phase == Phase::backward ? backward : forward) += row.seconds / each;
    flops += static_cast<double>(row.flops) / each;
    bytes += static_cast<double>(row.bytes_read + row.bytes_written) / each;
    calls += static_cast<double>(row.calls) / each;
  }
};

std::string milliseconds(double seconds) { return base::fixed_text(1e3 * seconds, 3); }

std::string text_of(const Line& line, size_t width, const Profile& profile, bool layer) {
  const double step = profile.seconds / static_cast<double>(profile.steps);
  const double rate = line.seconds() > 0 ? line.flops / line.seconds() : 0;
  return base::str(
      left(line.name, width), right(milliseconds(line.forward), 10),
      right(layer ? milliseconds(line.backward) : "", 10),
      right(base::fixed_text(1e2 * line.seconds() / step, 1), 8),
      right(base::fixed_text(line.flops / 1e6, 1), 10),
      right(line.flops > 0 ? base::fixed_text(1e2 * rate / profile.flops_per_second, 0) : "", 7),
      right(base::fixed_text(line.bytes / static_cast<double>(MiB), 1), 9),
      right(base::fixed_text(line.calls, 0), 7), "\n");
}

}  // namespace

std::string profile_table(const Profile& profile) {
  if (profile.steps == 0) return "profile: no step was watched\n";
  std::vector<Line> layers;  // in the order in which the model was built
  std::vector<Line> parts;
  std::map<std::string, size_t> place;
  for (const ProfileRow& row : profile.rows) {
    if (row.phase == Phase::forward || row.phase == Phase::backward) {
      const auto [found, is_new] = place.try_emplace(row.module, layers.size());
      if (is_new) layers.push_back({.name = row.module.empty() ? "(between layers)" : row.module});
      layers[found->second].add(row, profile.steps);
    } else {
      parts.push_back({.name = base::str("(", kPhaseNames[static_cast<size_t>(row.phase)], ")")});
      parts.back().add(row, profile.steps);
    }
  }
  size_t width = 18;
  for (const Line& line : layers) width = std::max(width, line.name.size() + 1);
  std::string text = base::str("profile of ", profile.steps, " steps, a step's mean, rank 0: ",
                               milliseconds(profile.seconds / static_cast<double>(profile.steps)),
                               " ms\n", left("module", width), right("fwd ms", 10),
                               right("bwd ms", 10), right("share %", 8), right("Mflop", 10),
                               right("peak %", 7), right("MiB", 9), right("calls", 7), "\n");
  for (const Line& line : layers) text += text_of(line, width, profile, true);
  for (const Line& line : parts) text += text_of(line, width, profile, false);
  return text;
}

nlohmann::json profile_json(const Profile& profile) {
  nlohmann::json rows = nlohmann::json::array();
  int64_t flops = 0;
  double residual = 0;
  for (const ProfileRow& row : profile.rows) {
    flops += row.flops;
    if (row.phase == Phase::other) residual += row.seconds;
    rows.push_back({{"module", row.module},
                    {"phase", kPhaseNames[static_cast<size_t>(row.phase)]},
                    {"seconds", row.seconds},
                    {"share", profile.seconds > 0 ? row.seconds / profile.seconds : 0},
                    {"flops", row.flops},
                    {"bytes_read", row.bytes_read},
                    {"bytes_written", row.bytes_written},
                    {"calls", row.calls}});
  }
  return {{"steps", profile.steps},
          {"seconds", profile.seconds},
          {"peak_flops_per_second", profile.flops_per_second},
          {"flops", flops},
          {"residual_seconds", residual},
          {"rows", std::move(rows)}};
}

void write_profile(const std::string& folder, const Profile& profile) {
  files::LineFile(folder + "/profile.json").add(profile_json(profile).dump(1));
}

}  // namespace lockstep
