#include "lockstep/plan/optimizers.h"

#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::plan {

Optimizer parse_optimizer(std::string_view name) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < kOptimizers.size(); ++i) {
    if (kOptimizers[i].name == name) return static_cast<Optimizer>(i);
    names.emplace_back(kOptimizers[i].name);
  }
  throw UsageError(
      base::str("there is no optimizer \"", name, "\".\n  These are: ", base::joined(names)));
}

}  // namespace lockstep::plan
