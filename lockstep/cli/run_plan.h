/// What a run would do, told without doing it: the data it reads, which rank computes which leaves.
#pragma once

#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "lockstep/files/picture_file.h"
#include "lockstep/input/training_data.h"
#include "lockstep/plan/train_config.h"

namespace lockstep::cli {

/// The data of a run, open and looked at: tokens or pictures, the others null; all null where a
/// program of the user's own reads them.
struct RunData {
  std::shared_ptr<const input::TrainingData> train;
  std::shared_ptr<const input::TokenFile> valid;
  std::shared_ptr<const files::PictureFile> pictures = {};
  std::shared_ptr<const files::PictureFile> valid_pictures = {};
};

/// Throws EnvironmentError: a file is not there, is shorter than one sequence, or holds ids that
/// the vocabulary does not have. UsageError: data.train does not name files, or the data were made
/// with another tokenizer than data.tokenizer.
RunData open_data(const plan::TrainConfig& config);

/// The plan for `ranks` ranks, as a person reads it and as a program does.
std::string run_plan_text(const plan::TrainConfig& config, int ranks, const RunData& data);
nlohmann::json run_plan_json(const plan::TrainConfig& config, int ranks, const RunData& data);

}  // namespace lockstep::cli
