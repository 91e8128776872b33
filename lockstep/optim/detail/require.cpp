#include "lockstep/optim/detail/require.h"

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"

namespace lockstep::optim::detail {

void require(bool holds, const char* optimizer, const char* field, double value, const char* rule) {
  if (holds) return;
  throw UsageError(
      base::str(optimizer, ": ", field, " is ", base::exact(value), ", but must be ", rule));
}

void require_share(const char* optimizer, const char* field, double value) {
  require(value >= 0 && value < 1, optimizer, field, value, "in [0, 1)");
}

void require_eps(const char* optimizer, double eps) {
  require(eps > 0 && std::isfinite(eps) && static_cast<float>(eps) > 0, optimizer, "eps", eps,
          "above 0, also as a float");
}

void require_decay(const char* optimizer, double weight_decay) {
  require(weight_decay >= 0 && std::isfinite(weight_decay), optimizer, "weight_decay", weight_decay,
          "0 or more");
}

void require_rate(const char* optimizer, double lr) {
  require(lr >= 0 && std::isfinite(lr), optimizer, "lr", lr, "0 or more");
}

void require_scale(const char* optimizer, double grad_scale) {
  require(std::isfinite(grad_scale), optimizer, "grad_scale", grad_scale, "finite");
}

}  // namespace lockstep::optim::detail
