#include "lockstep/cli/eval.h"

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/cli/arguments.h"
#include "lockstep/cli/job.h"
#include "lockstep/cli/open_model.h"
#include "lockstep/files/picture_file.h"
#include "lockstep/input/token_file.h"

namespace lockstep::cli {

int eval_command(const std::vector<std::string>& args) {
  std::string run_or_file;
  std::string data;
  std::string logits;
  int ranks = 1;
  bool json = false;
  CLI::App app("The validation loss of a run's last weights, or of another model's.",
               "lockstep eval");
  app.add_option("RUN|MODEL", run_or_file,
                 "a run, checkpoint, model file, Hugging Face folder or model of llm.c")
      ->required();
  app.add_option("--data", data,
                 "file of tokens or pictures (default: the validation data it was trained with)");
  app.add_option("--logits", logits,
                 "safetensors file to write: the data's first tokens (ids) and the logits of the "
                 "token after each");
  add_ranks(app, ranks, "ranks (default 1); those beyond the micro-batches have nothing to do");
  app.add_flag("--json", json, "one object on stdout");
  if (!parse_arguments(app, args)) return 0;

  const checkpoints::WeightOrigin model = open_model(run_or_file);
  const bool has_data = !model.identity.empty();  // that it was trained with
  if (data.empty() && !has_data) {
    throw UsageError(base::str(run_or_file, " is no run of Lockstep and names no validation data.",
                               "\n  Say which: --data FILE"));
  }
  if (!logits.empty() && model.config.model.family == "resnet") {
    throw UsageError("lockstep eval: --logits is of language models.");
  }
  launch::JobOptions job{.command = {worker_program(), "eval", run_or_file}, .ranks = ranks};
  if (!data.empty()) {
    // Found wrong here, once, instead of by each rank.
    if (!files::is_picture_file(data)) input::TokenFile::open(data);
    job.command.insert(job.command.end(), {"--data", data});
  }
  if (!logits.empty()) job.command.insert(job.command.end(), {"--logits", logits});
  if (json) job.command.push_back("--json");
  return run_and_report(job);
}

}  // namespace lockstep::cli
