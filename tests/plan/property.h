/// RapidCheck with a fixed seed, so that a run of the tests can be repeated. Another seed and more
/// cases: RC_PARAMS="seed=7 max_success=10000".
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

#include <rapidcheck/gtest.h>

namespace lockstep::plan {

/// Set before main, and so before RapidCheck reads it for the first time.
inline const int kSeedIsFixed = setenv("RC_PARAMS", "seed=20200416", /*overwrite=*/0);

}  // namespace lockstep::plan
