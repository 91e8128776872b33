/// A tiny run that stops after some steps and goes on from its checkpoint, on another layout.
#pragma once

#include <string>

#include "lockstep/checkpoint/folder.h"
#include "tests/train/layouts.h"

namespace lockstep::testing {

/// Steps up to `stop_after` (-1: to the end) in `folder`, from the checkpoint `from` (empty: the
/// start). The summary.
inline nlohmann::json run_part(const TinyRun& run, int ranks, const std::string& folder,
                               const std::string& from, int64_t stop_after = -1) {
  std::string summary;
  net::run_on_threads(ranks, [&](const std::shared_ptr<net::Group>& world) {
    Trainer trainer({.config = run.config,
                     .run_folder = folder,
                     .console_fd = run.silent(),
                     .resume_from = from,
                     .stop_after = stop_after},
                    world->endpoint());
    const TrainResult result = trainer.run();
    if (!result.summary.empty()) summary = result.summary;
  });
  return nlohmann::json::parse(summary);
}

struct ResumedRun : LayoutRun {
  ResumedRun() { config.checkpoint.keep = 1000; }

  nlohmann::json run_part(const Layout& layout, const std::string& from, int64_t stop_after = -1) {
    layout.set(config);
    return testing::run_part(*this, layout.ranks(), folder.path(), from, stop_after);
  }

  std::string checkpoint_of(int64_t step) const {
    return checkpoints::checkpoints_of(folder.path()) + "/" + checkpoints::folder_name(step);
  }

  TempFolder folder;
};

}  // namespace lockstep::testing
