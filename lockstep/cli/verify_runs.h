/// The two runs of `lockstep verify`, in a folder of their own: settings, tokens, logs, witnesses.
#pragma once

#include <string>
#include <vector>

#include "lockstep/cli/work_folder.h"
#include "lockstep/launch/job.h"
#include "lockstep/plan/train_config.h"

namespace lockstep::cli {

class VerifyRuns {
 public:
  /// `keep`: the folder that stays; empty: one that goes with this object. Throws UsageError where
  /// it holds something, EnvironmentError where it cannot be made.
  VerifyRuns(const std::string& worker, const std::string& keep);

  /// Trains `config` on so many ranks; what they write goes to logs. Data and folder are set here.
  /// `fault`: planted in the ranks (base/planted_fault.h); empty: none.
  launch::JobResult run(const std::string& name, plan::TrainConfig config, int ranks,
                        const std::string& fault = {});

  /// Of the run `name`, for files::read_witness.
  std::string witness_folder(const std::string& name) const { return folder_ + "/" + name; }

 private:
  std::string tokens_for(const plan::TrainConfig& config) const;

  std::string worker_;
  WorkFolder work_;
  std::string folder_;
};

/// Enough tokens for `sequences` of a model of `vocab` ids: a text with a rule that can be learned
/// and exceptions to it, so that gradients are neither noise nor nothing.
std::vector<int64_t> structured_tokens(int64_t count, int64_t vocab);

}  // namespace lockstep::cli
