#include "lockstep/train/progress_line.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "lockstep/base/number_text.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"

namespace lockstep {
namespace {

using base::fixed_text;

struct Figure {
  int weight;  // the least is left out first
  std::string text;
};

std::string percent(double share, int digits) { return fixed_text(1e2 * share, digits) + " %"; }

std::vector<Figure> figures(const StepReport& report, const ProgressOptions& options) {
  std::vector<Figure> all = {{10, base::str("step ", report.step, "/", options.steps)}};
  if (report.epoch > 1) all.push_back({6, base::str("epoch ", report.epoch)});
  all.push_back({9, "loss " + fixed_text(report.loss, 4)});
  all.push_back({3, "grad " + fixed_text(report.grad_norm, 3)});
  all.push_back({2, "lr " + base::scientific_text(report.lr, 2)});
  all.push_back({5, fixed_text(1e3 * report.seconds, report.seconds < 0.01 ? 1 : 0) + " ms"});
  all.push_back({7, base::with_commas(static_cast<int64_t>(report.tokens_per_second)) + " " +
                        options.unit + "/s"});
  all.push_back({4, "MFU " + percent(report.mfu, 0)});
  all.push_back({1, base::bytes_text(report.memory_bytes())});
  if (report.comm_seconds > 0) {
    all.push_back({0, base::str("comm ", percent(report.comm_share(), 1), ", ",
                                percent(report.comm_hidden(), 0), " of it hidden")});
  }
  if (report.loss_scale != 1) {
    all.push_back({4, "scale " + base::with_commas(static_cast<int64_t>(report.loss_scale))});
  }
  if (report.skipped > 0) all.push_back({6, base::str(report.skipped, " skipped")});
  if (!std::isnan(report.noise_scale)) {
    all.push_back({3, "noise " + fixed_text(report.noise_scale, 1) + " samples"});
  }
  all.push_back({8, base::duration_text(options.seconds_left) + " left"});
  return all;
}

std::string joined(const std::vector<Figure>& figures) {
  std::string line;
  for (const Figure& figure : figures) line += (line.empty() ? "" : " | ") + figure.text;
  return line;
}

}  // namespace

std::string progress_line(const StepReport& report, const ProgressOptions& options) {
  std::vector<Figure> shown = figures(report, options);
  std::string line = joined(shown);
  const auto columns = static_cast<size_t>(std::max(options.columns, 0));
  while (columns > 0 && line.size() > columns && shown.size() > 1) {
    shown.erase(std::min_element(shown.begin(), shown.end(), [](const Figure& a, const Figure& b) {
      return a.weight < b.weight;
    }));
    line = joined(shown);
  }
  return columns > 0 ? line.substr(0, columns) : line;
}

}  // namespace lockstep
