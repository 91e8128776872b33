#include "lockstep/cli/checkpoint_import.h"

#include <iostream>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/checkpoint/model_file.h"
#include "lockstep/cli/arguments.h"
#include "lockstep/cli/open_model.h"

namespace lockstep::cli {

int checkpoint_import(const std::vector<std::string>& args) {
  std::string from, to;
  int64_t heads = 0;
  CLI::App app("A model of another program as a model file of Lockstep, its numbers as they are.",
               "lockstep checkpoint import");
  app.add_option("FROM", from,
                 "a Hugging Face folder of GPT-2 or Llama, a safetensors file of nanoGPT, a model "
                 "file of llm.c, or one of Lockstep's own")
      ->required();
  app.add_option("TO", to, "the file to write: NAME.safetensors")->required();
  app.add_option("--heads", heads, "attention heads, of nanoGPT's files, which need not say it")
      ->check(CLI::Range(1, 1 << 20));
  if (!parse_arguments(app, args)) return 0;
  if (!to.ends_with(".safetensors")) {
    throw UsageError(base::str("lockstep checkpoint import writes a safetensors file: name it ", to,
                               ".safetensors"));
  }

  const auto weights = checkpoints::open_weights(from, {.heads = heads});
  say_notes(weights->origin().notes);
  checkpoints::prove(*weights);
  checkpoints::write_model_file(to, *weights);
  int64_t elements = 0;
  for (const auto& tensor : weights->list()) elements += tensor.numel;
  std::cout << from << " (" << weights->origin().kind << ") -> " << to << ": "
            << base::with_commas(elements) << " parameters, digest "
            << checkpoints::open_weights(to)->origin().param_digest << "\n";
  return 0;
}

}  // namespace lockstep::cli
