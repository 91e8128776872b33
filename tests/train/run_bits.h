/// What of a run must not depend on the layout, in figures that compare exactly.
#pragma once

#include <ostream>
#include <string>

#include <nlohmann/json.hpp>

namespace lockstep::testing {

struct Bits {
  std::string digest;
  double grad_norm;
  double loss;
  double val_loss;
  bool operator==(const Bits&) const = default;
};

inline std::ostream& operator<<(std::ostream& out, const Bits& bits) {
  return out << bits.digest << " norm " << std::hexfloat << bits.grad_norm << " loss " << bits.loss
             << " validation " << bits.val_loss;
}

inline Bits bits_of(const nlohmann::json& summary) {
  return {summary["param_digest"], summary["grad_norm"], summary["loss"], summary["val_loss"]};
}

}  // namespace lockstep::testing
