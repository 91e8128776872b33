/// The rules for options and steps, which name the optimizer, the field and its value.
#pragma once

namespace lockstep::optim::detail {

/// `holds` is false for a NaN too: every rule is written as a comparison that must be true. Throws
/// UsageError.
void require(bool holds, const char* optimizer, const char* field, double value, const char* rule);

void require_share(const char* optimizer, const char* field, double value);  // in [0, 1)
/// Above 0 as a float, too: kernels work in fp32, and would divide zero by zero.
void require_eps(const char* optimizer, double eps);
void require_decay(const char* optimizer, double weight_decay);
void require_rate(const char* optimizer, double lr);
void require_scale(const char* optimizer, double grad_scale);

}  // namespace lockstep::optim::detail
