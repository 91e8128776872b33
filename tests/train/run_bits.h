/// What of a run must not depend on the layout, in figures that compare exactly.
#pragma once

#include <ostream>
#include <string>

#include <gtest/gtest.h>
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

/// Every rank's own count of what each of its groups moved is what the plan says.
inline void expect_planned_bytes(const nlohmann::json& summary) {
  for (const auto& rank : summary["ranks"]) {
    for (const std::string group : rank["groups"]) {
      EXPECT_EQ(rank[group + "_bytes"], rank[group + "_planned_bytes"])
          << group << " of rank " << rank["rank"];
    }
  }
}

}  // namespace lockstep::testing
