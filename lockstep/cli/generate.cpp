#include "lockstep/cli/generate.h"

#include <cmath>
#include <cstdint>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/cli/arguments.h"
#include "lockstep/cli/job.h"
#include "lockstep/cli/run_folder.h"

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
  CLI::App app("Text from a run's last weights, or from a file's.", "lockstep generate");
  app.add_option("RUN|FILE", run_or_file, "a run folder or a safetensors file")->required();
  app.add_option("--prompt", prompt, "text to go on from (default: a new line)");
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

  const std::string weights = weights_of(run_or_file);
  return run_and_report(
      {.command = {worker_program(), "generate", weights, "--prompt", prompt, "--tokens",
                   std::to_string(tokens), "--temperature", base::exact(temperature), "--top-k",
                   std::to_string(top_k), "--seed", std::to_string(seed)},
       .ranks = 1});
}

}  // namespace lockstep::cli
