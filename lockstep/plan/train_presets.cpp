// The presets that `lockstep train --preset` starts from.
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/plan/train_config.h"

namespace lockstep::plan {

std::vector<std::string> preset_names() { return {"nano", "nano8", "small", "fashion"}; }

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
  if (name == "fashion") {
    config.run.steps = 3'752;  // eight epochs
    config.run.check_every = 500;
    config.model.family = "resnet";
    config.model.layers = 1;
    config.model.width = 16;
    config.model.norm = "batch";
    config.data.train = "data/fashion/train.pictures";
    config.data.valid = "data/fashion/val.pictures";
    config.data.global_batch = 128;
    config.data.micro_batch = 32;
    config.data.eval_batches = 79;  // all of it
    config.data.augment = true;
    config.optim.lr = 4e-3;
    config.optim.warmup_steps = 200;
    config.optim.min_lr_ratio = 0.01;
    config.optim.weight_decay = 0.05;
    config.log.every = 50;
    config.log.eval_every = 469;  // an epoch
    return config;
  }
  const std::string near = base::nearest(name, preset_names());
  throw UsageError(base::str("there is no preset \"", name, "\".\n  ",
                             near.empty() ? "" : base::str("Did you mean \"", near, "\"? "),
                             "Presets: ", base::joined(preset_names()), "."));
}

}  // namespace lockstep::plan
