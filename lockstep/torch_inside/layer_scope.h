/// Marks for the profile: which layer, and which part of the step, the code at hand is.
///
/// Both cost one look at a thread-local pointer while nothing is profiled (layer_profile.h).
#pragma once

#include <array>
#include <string_view>

namespace lockstep::torch_inside {

/// The parts of a step. `other` is what none of them covers.
enum class Phase {
  data,
  forward,
  backward,
  fold,
  reduce_wait,
  gather_wait,
  pipeline_wait,
  norm,
  update,
  other
};

inline constexpr int kPhases = 10;
inline constexpr std::array<const char*, kPhases> kPhaseNames = {
    "data",        "forward",       "backward", "fold",   "reduce_wait",
    "gather_wait", "pipeline_wait", "norm",     "update", "other"};

/// While it lives, what runs in this thread belongs to the layer at `path`, inner marks first. An
/// operator on a module's own parameter belongs to that module in any case.
class LayerScope {
 public:
  explicit LayerScope(std::string_view path);
  ~LayerScope();
  LayerScope(const LayerScope&) = delete;
  LayerScope& operator=(const LayerScope&) = delete;

 private:
  bool open_;
};

/// While it lives, what runs in this thread belongs to this part of the step.
class PhaseScope {
 public:
  explicit PhaseScope(Phase phase);
  ~PhaseScope();
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  bool open_;
};

}  // namespace lockstep::torch_inside
