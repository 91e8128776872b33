#include "lockstep/precision/loss_scaler.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::precision {

bool is_scale(double number) {
  int exponent = 0;
  return number >= 1 && std::isfinite(number) && std::frexp(number, &exponent) == 0.5;
}

LossScaler::LossScaler(const LossScalerOptions& options)
    : dynamic_(options.dynamic),
      min_(options.min),
      growth_steps_(options.growth_steps),
      hysteresis_(options.hysteresis),
      scale_(options.first) {
  const auto require = [](bool holds, const char* field, double value, const char* what) {
    if (!holds) {
      throw UsageError(
          base::str("LossScaler: ", field, " is ", value, ", but must be ", what, "."));
    }
  };
  require(is_scale(options.first), "first", options.first, "a power of two from 1 on");
  require(is_scale(options.min), "min", options.min, "a power of two from 1 on");
  require(!dynamic_ || options.first <= kLargestScale, "first", options.first, "at most 16777216");
  require(!dynamic_ || options.min <= options.first, "min", options.min, "at most first");
  require(growth_steps_ >= 1, "growth_steps", static_cast<double>(growth_steps_), "1 or more");
  require(hysteresis_ >= 1, "hysteresis", static_cast<double>(hysteresis_), "1 or more");
}

void LossScaler::clean() {
  if (!dynamic_ || ++clean_ < growth_steps_) return;
  clean_ = 0;
  under_scale_ = 0;
  scale_ = std::min(2 * scale_, kLargestScale);
}

bool LossScaler::overflow() {
  ++overflows_;
  clean_ = 0;
  if (!dynamic_) return false;
  if (++under_scale_ < hysteresis_) return true;
  under_scale_ = 0;
  if (scale_ <= min_) return false;
  scale_ /= 2;
  return true;
}

nlohmann::json LossScaler::state() const {
  return {{"scale", scale_},
          {"clean", clean_},
          {"under_scale", under_scale_},
          {"overflows", overflows_}};
}

void LossScaler::restore(const nlohmann::json& state) {
  LossScaler found = *this;
  try {
    found.scale_ = state.at("scale").get<double>();
    found.clean_ = state.at("clean").get<int64_t>();
    found.under_scale_ = state.at("under_scale").get<int64_t>();
    found.overflows_ = state.at("overflows").get<int64_t>();
  } catch (const nlohmann::json::exception& error) {
    throw StateError(base::str("this is no state of a loss scale: ", error.what()));
  }
  if (!is_scale(found.scale_) || found.clean_ < 0 || found.under_scale_ < 0) {
    throw StateError(base::str("a loss scale of ", found.scale_, " after ", found.clean_,
                               " clean steps cannot be: scales are powers of two."));
  }
  *this = found;
}

LossScalerOptions scaler_options_of(const plan::TrainConfig& config) {
  const auto& precision = config.precision;
  if (precision.compute != "fp16") return {};
  if (precision.loss_scale != "dynamic") return {.first = std::stod(precision.loss_scale)};
  return {.dynamic = true,
          .first = precision.first_scale,
          .min = precision.min_scale,
          .growth_steps = precision.growth_steps,
          .hysteresis = precision.hysteresis};
}

}  // namespace lockstep::precision
