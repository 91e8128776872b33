#include "lockstep/cli/verify_runs.h"

#include "lockstep/base/hash.h"
#include "lockstep/cli/run_folder.h"
#include "lockstep/files/token_writer.h"

namespace lockstep::cli {
std::vector<int64_t> structured_tokens(int64_t count, int64_t vocab) {
  std::vector<int64_t> tokens;
  int64_t last = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t draw = base::mix64(static_cast<uint64_t>(i));
    const bool follows_rule = draw % 4 != 0;
    last = follows_rule ? (3 * last + 1) % vocab
                        : static_cast<int64_t>(draw / 4 % static_cast<uint64_t>(vocab));
    tokens.push_back(last);
  }
  return tokens;
}

VerifyRuns::VerifyRuns(const std::string& worker, const std::string& keep)
    : worker_(worker), work_("verify", keep), folder_(work_.path()) {}

std::string VerifyRuns::tokens_for(const plan::TrainConfig& config) const {
  const std::string path = folder_ + "/tokens.bin";
  const int64_t windows = config.data.global_batch * (config.run.steps + 1);
  const auto writer =
      files::make_token_writer(path, files::TokenFormat::nanogpt, files::TokenType::u16);
  writer->write(structured_tokens(windows * (config.model.context + 1), config.model.vocab));
  writer->commit();
  return path;
}

launch::JobResult VerifyRuns::run(const std::string& name, plan::TrainConfig config, int ranks,
                                  const std::string& fault) {
  config.data.train = config.data.valid = tokens_for(config);
  config.run.name = name;
  config.run.dir = folder_;
  const std::string run = create_run_folder({.config = config, .origins = {}});

  launch::JobOptions job;
  job.command = {worker_, "train", run, "--witness", witness_folder(name)};
  if (!fault.empty()) job.command.insert(job.command.end(), {"--plant", fault});
  job.ranks = ranks;
  job.engine = config.comm.engine;
  job.timeout_s = config.comm.timeout_s;
  job.log_folder = run;
  const Hush hush(run + "/console.log");
  return launch::run_job(job);
}

}  // namespace lockstep::cli
