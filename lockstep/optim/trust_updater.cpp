#include "lockstep/optim/trust_updater.h"

#include <utility>

#include "lockstep/base/assert.h"
#include "lockstep/optim/detail/require.h"

namespace lockstep::optim {

TrustUpdater::TrustUpdater(const char* name, std::vector<Span> spans)
    : name_(name), spans_(std::move(spans)) {}

void TrustUpdater::set_norms(std::vector<TrustNorms> norms) {
  LOCKSTEP_ASSERT(norms.size() == spans_.size(), "norms come by span");
  norms_ = std::move(norms);
}

void TrustUpdater::begin_measure(double grad_scale, const std::vector<ChunkSums>& sums) {
  LOCKSTEP_ASSERT(sums.size() == spans_.size(), "sums go by span");
  LOCKSTEP_ASSERT(!measured_, "each step is measured once");
  detail::require_scale(name_, grad_scale);
  measured_ = true;
  measured_scale_ = grad_scale;
}

std::vector<TrustNorms> TrustUpdater::begin_step(double lr, double grad_scale) {
  LOCKSTEP_ASSERT(measured_ && norms_.size() == spans_.size(), "a step follows its norms");
  LOCKSTEP_ASSERT(grad_scale == measured_scale_, "norms are of the gradients of the step");
  detail::require_rate(name_, lr);
  measured_ = false;
  ++steps_taken_;
  return std::exchange(norms_, {});
}

}  // namespace lockstep::optim
