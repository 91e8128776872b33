#include "lockstep/cli/generate.h"

#include <cmath>
#include <cstdint>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/cli/arguments.h"
#include "lockstep/cli/job.h"
#include "lockstep/cli/open_model.h"

namespace lockstep::cli {
namespace {

constexpr int64_t kMostTokens = 1'000'000;

void require(bool fits, const std::string& flag, const std::string& range) {
  if (!fits) throw UsageError(base::str("lockstep generate: ", flag, " wants ", range, "."));
}

}  // namespace

int generate_command(const std::vector<std::string>& args) {
  std::string run_or_file;
  std::string prompt = "\n";
  int64_t tokens = 200;
  double temperature = 0.8;
  int64_t top_k = 0;
  int64_t seed = 1;
  std::string tokenizer;
  CLI::App app("Text from a run's last weights, or from another model's.", "lockstep generate");
  app.add_option("RUN|MODEL", run_or_file,
                 "a run, checkpoint, model file, Hugging Face folder or model of llm.c")
      ->required();
  app.add_option("--prompt", prompt, "text to go on from (default: a new line)");
  app.add_option("--tokenizer", tokenizer,
                 "of the model's ids, where it does not say: bytes, gpt2, cl100k, ...");
  app.add_option("--tokens", tokens, "tokens to write (default 200)");
  app.add_option("--temperature", temperature,
                 "0 always takes the likeliest token, 1 draws as the model says (default 0.8)");
  app.add_option("--top-k", top_k, "draw among the K likeliest only; 0: among all (default 0)");
  app.add_option("--seed", seed, "another seed, another text (default 1)");
  if (!parse_arguments(app, args)) return 0;
  require(tokens >= 0 && tokens <= kMostTokens, "--tokens",
          base::str("a number from 0 to ", kMostTokens));
  require(std::isfinite(temperature) && temperature >= 0 && temperature <= 100, "--temperature",
          "a number from 0 to 100");
  require(top_k >= 0, "--top-k", "a number from 0");
  require(seed >= 0, "--seed", "a number from 0");

  const checkpoints::WeightOrigin model = open_model(run_or_file);
  if (tokenizer.empty() && !model.knows_tokenizer) {
    throw UsageError(base::str(run_or_file, " (", model.kind, ") does not say which tokenizer its ",
                               "ids are of.\n  Name it: --tokenizer NAME"));
  }
  launch::JobOptions job{
      .command = {worker_program(), "generate", run_or_file, "--prompt", prompt, "--tokens",
                  std::to_string(tokens), "--temperature", base::exact(temperature), "--top-k",
                  std::to_string(top_k), "--seed", std::to_string(seed)},
      .ranks = 1};
  if (!tokenizer.empty()) job.command.insert(job.command.end(), {"--tokenizer", tokenizer});
  return run_and_report(job);
}

}  // namespace lockstep::cli
