/// The JSON object of `lockstep train --json`: what a run was, for programs.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/memory/account.h"
#include "lockstep/plan/fitting.h"
#include "lockstep/train/timeline.h"

namespace lockstep {

/// Of the whole run; alike on all ranks.
/// The checkpoint that a run went on from, as this rank read it.
struct ResumedFrom {
  std::string folder;
  int64_t step = 0;
  int64_t bytes_read = 0;
  double seconds = 0;
};

struct SavedCheckpoints {
  int64_t saves = 0;
  int64_t bytes = 0;         // that this rank wrote of the last one
  double pause_seconds = 0;  // of all
};

struct RunTotals {
  std::string run_folder;
  double loss =
      std::nan("");  // of the last step, mean nats per token; null in JSON if there is none
  double val_loss = std::nan("");
  double val_accuracy = std::nan("");  // left out where the task has none
  double grad_norm = std::nan("");
  std::string param_digest;
  std::string identity;
  int64_t steps = 0;
  int64_t tokens = 0;
  double epochs = 0;
  double tokens_per_second = 0;
  double mfu = 0;
  double loss_scale = 1;      // after the last step
  int64_t skipped_steps = 0;  // computed and not taken
  int64_t rewinds = 0;
  /// Of the parameters' moving average, and the gradient noise scale, where there are.
  struct Average {
    double val_loss = std::nan("");
    std::string digest;
  };
  std::optional<Average> average = {};
  struct Noise {
    double samples = std::nan("");
    double tokens = std::nan("");
  };
  std::optional<Noise> noise = {};
  bool stopped = false;                     // on request, before its last evaluation
  std::optional<ResumedFrom> resumed = {};  // what it went on from
  SavedCheckpoints checkpoints = {};
  std::string pipeline = {};  // its schedule; empty: there is none
  BubbleReport bubble = {};
};

/// What one rank moved in one of its groups.
struct GroupTraffic {
  std::string name;
  GroupTotals totals;
  int64_t planned_bytes = 0;
};

/// What one rank did.
struct RankTotals {
  int64_t samples = 0;
  int64_t gemm_flops = 0;
  memory::KindBytes peak_bytes = {};
  plan::RankMemory planned;
  std::vector<GroupTraffic> groups;
};

/// Gathers every rank's totals; all ranks of `world` call it. Empty on all but rank 0.
std::string run_summary(ProcessGroup& world, const RunTotals& run, const RankTotals& mine);

}  // namespace lockstep
