/// Checks that the settings of all model families share.
#pragma once

#include <cstdint>

namespace lockstep::models {

/// Throws UsageError naming model.`field`.
void require_size(const char* field, int64_t value);     // 1 or more
void require_dropout(double p);                          // in [0, 1)
void require_positive(const char* field, double value);  // finite, above 0

}  // namespace lockstep::models
