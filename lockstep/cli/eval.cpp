#include "lockstep/cli/eval.h"

#include "lockstep/cli/arguments.h"
#include "lockstep/cli/job.h"
#include "lockstep/cli/run_folder.h"
#include "lockstep/files/picture_file.h"
#include "lockstep/input/token_file.h"

namespace lockstep::cli {

int eval_command(const std::vector<std::string>& args) {
  std::string run_or_file;
  std::string data;
  int ranks = 1;
  bool json = false;
  CLI::App app("The validation loss of a run's last weights, or of a file's.", "lockstep eval");
  app.add_option("RUN|FILE", run_or_file, "a run folder or a safetensors file")->required();
  app.add_option("--data", data,
                 "file of tokens or pictures (default: the validation data it was trained with)");
  add_ranks(app, ranks, "ranks (default 1); those beyond the micro-batches have nothing to do");
  app.add_flag("--json", json, "one object on stdout");
  if (!parse_arguments(app, args)) return 0;

  const std::string weights = weights_of(run_or_file);
  launch::JobOptions job{.command = {worker_program(), "eval", weights}, .ranks = ranks};
  if (!data.empty()) {
    // Found wrong here, once, instead of by each rank.
    if (!files::is_picture_file(data)) input::TokenFile::open(data);
    job.command.insert(job.command.end(), {"--data", data});
  }
  if (json) job.command.push_back("--json");
  return run_and_report(job);
}

}  // namespace lockstep::cli
