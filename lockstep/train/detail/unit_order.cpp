#include "lockstep/train/detail/unit_order.h"

#include <algorithm>
#include <set>

namespace lockstep::detail {
namespace {

// A pass that comes to its units over and over is cut here, where its first unit comes again.
constexpr size_t kMostTurns = 4;

}  // namespace

void UnitOrder::begin(Pass pass) {
  learn();
  pass_ = pass;
  follows_ = !learned().empty();
}

void UnitOrder::learn() {
  if (!trace_.empty()) learned() = std::move(trace_);
  trace_.clear();
}

bool UnitOrder::starts_again(int unit) const {
  if (pass_ == Pass::backward || trace_.empty() || unit != trace_.front()) return false;
  if (follows_) return trace_.size() == learned().size();
  return std::set<int>(trace_.begin(), trace_.end()).size() == units_ ||
         trace_.size() >= kMostTurns * units_;
}

void UnitOrder::come_to(int unit) {
  if (starts_again(unit)) {
    learn();
    follows_ = true;
  }
  follows_ = follows_ && trace_.size() < learned().size() && learned()[trace_.size()] == unit;
  trace_.push_back(unit);
}

std::vector<int> UnitOrder::ahead(int depth) const {
  std::vector<int> next;
  if (!follows_) return next;
  for (size_t at = trace_.size(); at < learned().size(); ++at) {
    const int unit = learned()[at];
    if (std::ssize(next) == depth) break;
    const bool here = !trace_.empty() && unit == trace_.back();
    if (!here && std::find(next.begin(), next.end(), unit) == next.end()) next.push_back(unit);
  }
  return next;
}

}  // namespace lockstep::detail
