#include "lockstep/cli/checkpoint_export.h"

#include <filesystem>
#include <iostream>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/checkpoint/gguf.h"
#include "lockstep/checkpoint/hugging_face.h"
#include "lockstep/cli/arguments.h"
#include "lockstep/cli/open_model.h"

namespace lockstep::cli {

int checkpoint_export(const std::vector<std::string>& args) {
  std::string from, to, format = "hf", dtype = "F32";
  double file_gb = 5;
  CLI::App app(
      "A model for other programs: a Hugging Face folder of GPT-2 or Llama, or a GGUF file of "
      "Llama.",
      "lockstep checkpoint export");
  app.add_option("FROM", from, "a run, checkpoint, model file or any other model that is read")
      ->required();
  app.add_option("TO", to, "the folder to make, of gguf the file")->required();
  app.add_option("--format", format, "hf or gguf")
      ->check(CLI::IsMember({"hf", "gguf"}))
      ->capture_default_str();
  app.add_option("--dtype", dtype, "type of the weights: F32, F16, or in a folder BF16")
      ->transform(CLI::IsMember({"F32", "BF16", "F16"}, CLI::ignore_case))
      ->capture_default_str();
  const CLI::Option* const by_files =
      app.add_option("--file-gb", file_gb,
                     "several files of a folder where one would hold more (10^9 bytes)")
          ->check(CLI::Range(1e-6, 1e6))
          ->capture_default_str();
  if (!parse_arguments(app, args)) return 0;

  const auto weights = checkpoints::open_weights(from);
  say_notes(weights->origin().notes);
  checkpoints::prove(*weights);
  if (format == "gguf") {
    if (by_files->count() > 0) {
      throw UsageError(
          "lockstep checkpoint export: --file-gb is of --format hf; a GGUF is one file.");
    }
    if (std::filesystem::exists(to)) {
      throw UsageError(base::str(to, " is there already.\n  Give the new file another name."));
    }
    checkpoints::export_gguf(*weights, to, dtype);
  } else {
    say_notes(checkpoints::write_hugging_face(
        *weights, to, {.dtype = dtype, .file_bytes = static_cast<int64_t>(file_gb * 1e9)}));
  }
  int64_t elements = 0;
  for (const auto& tensor : weights->list()) elements += tensor.numel;
  std::cout << from << " (" << weights->origin().kind << ") -> " << to << ": "
            << base::with_commas(elements) << " parameters in " << dtype << "\n";
  return 0;
}

}  // namespace lockstep::cli
