#include "lockstep/cli/line_fit.h"

namespace lockstep::cli {

std::optional<LineFit> fit_line(const std::vector<double>& bytes,
                                const std::vector<double>& seconds) {
  // Minimizes the sum of ((a + b x - t) / t)^2: weights of 1 / t^2.
  double w = 0;
  double wx = 0;
  double wt = 0;
  double wxx = 0;
  double wxt = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const double x = bytes[i];
    const double t = seconds[i];
    if (!(t > 0)) return std::nullopt;
    const double weight = 1 / (t * t);
    w += weight;
    wx += weight * x;
    wt += weight * t;
    wxx += weight * x * x;
    wxt += weight * x * t;
  }
  const double spread = w * wxx - wx * wx;
  if (bytes.size() < 2 || !(spread > 0)) return std::nullopt;
  LineFit fit;
  fit.seconds_per_byte = (w * wxt - wx * wt) / spread;
  fit.alpha_s = (wt - fit.seconds_per_byte * wx) / w;
  if (!(fit.seconds_per_byte > 0)) return std::nullopt;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const double fitted = fit.alpha_s + fit.seconds_per_byte * bytes[i];
    fit.residuals.push_back((seconds[i] - fitted) / seconds[i]);
  }
  return fit;
}

}  // namespace lockstep::cli
