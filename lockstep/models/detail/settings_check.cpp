#include "lockstep/models/detail/settings_check.h"

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"

namespace lockstep::models {
namespace {

// NaN fulfils no comparison: `holds` is false for it.
void require(bool holds, const char* field, double value, const char* rule) {
  if (holds) return;
  throw UsageError(base::str("model.", field, " is ", base::exact(value), ", but must be ", rule));
}

}  // namespace

void require_size(const char* field, int64_t value) {
  require(value >= 1, field, static_cast<double>(value), "1 or more");
}

void require_dropout(double p) { require(p >= 0 && p < 1, "dropout", p, "in [0, 1)"); }

void require_positive(const char* field, double value) {
  require(value > 0 && std::isfinite(value), field, value, "finite and above 0");
}

}  // namespace lockstep::models
