// The presets that `lockstep train --preset` starts from.
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/plan/train_config.h"

namespace lockstep::plan {

std::vector<std::string> preset_names() { return {"nano", "nano8", "small"}; }

TrainConfig preset(const std::string& name) {
  TrainConfig config;
  config.run.name = name;
  if (name == "nano") return config;
  if (name == "nano8") {
    config.model.layers = 8;
    return config;
  }
  if (name == "small") {
    config.run.steps = 50;
    config.model.layers = 6;
    config.model.heads = 6;
    config.model.width = 384;
    config.model.context = 256;
    config.data.global_batch = 8;
    config.data.micro_batch = 4;
    config.data.eval_batches = 4;
    config.optim.lr = 1e-3;
    config.optim.warmup_steps = 10;
    config.log.eval_every = 0;
    return config;
  }
  const std::string near = base::nearest(name, preset_names());
  throw UsageError(base::str("there is no preset \"", name, "\".\n  ",
                             near.empty() ? "" : base::str("Did you mean \"", near, "\"? "),
                             "Presets: ", base::joined(preset_names()), "."));
}

}  // namespace lockstep::plan
