// Settings as a model file or checkpoint carries them: JSON text.

#include "lockstep/plan/train_config.h"

#include "lockstep/base/error.h"
#include "lockstep/base/shallow_json.h"
#include "tests/fuzz/target.h"

LOCKSTEP_FUZZ_TARGET(train_config) {
  using namespace lockstep;
  const auto json =
      nlohmann::json::parse(base::shallow_json(bytes), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return;
  plan::TrainConfig config;
  try {
    config = plan::from_json(json);
  } catch (const UsageError&) {
    return;
  }
  // What is taken can be said again.
  const auto again = plan::to_json(config);
  fuzz::require(plan::to_json(plan::from_json(again)) == again, "other settings");
  try {
    plan::check(config, 3);
  } catch (const UsageError&) {
  }
}
