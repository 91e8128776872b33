#include "lockstep/worker/worker_main.h"

#include <ATen/Parallel.h>
#include <torch/version.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <iostream>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/number_text.h"
#include "lockstep/base/planted_fault.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/files/tokenizer.h"
#include "lockstep/files/write_point.h"
#include "lockstep/memory/counting_allocator.h"
#include "lockstep/torch_inside/gemm_counter.h"
#include "lockstep/train/evaluation.h"
#include "lockstep/train/generation.h"
#include "lockstep/train/image_task.h"
#include "lockstep/train/kernel_probe.h"
#include "lockstep/train/language_task.h"
#include "lockstep/train/logits_file.h"
#include "lockstep/train/model_file.h"
#include "lockstep/train/trainer.h"
#include "lockstep/worker/environment.h"
#include "lockstep/worker/message_engine.h"
#include "lockstep/worker/rank_signals.h"
#include "lockstep/worker/resume_from.h"

namespace lockstep::worker {
namespace {

constexpr int kStoppedOnRequest = 75;

/// A line on stdout. Throws EnvironmentError if it cannot be written: a result may not be lost in
/// silence.
void print(const std::string& line) {
  std::cout << line << std::endl;
  if (!std::cout) throw EnvironmentError("the result cannot be written to stdout.");
}

plan::TrainConfig read_config(const std::string& run_folder) {
  const std::string path = run_folder + "/config.json";
  std::ifstream in(path);
  if (!in) throw EnvironmentError(base::str(path, ": cannot be read."));
  try {
    return plan::from_json(nlohmann::json::parse(in));
  } catch (const nlohmann::json::exception& error) {
    throw EnvironmentError(base::str(path, ": ", error.what()));
  }
}

struct Run {
  std::string folder;
  plan::TrainConfig config;
  std::string resume_from;  // a checkpoint; empty: it begins
};

/// The run that all ranks take part in, as rank 0 tells it: others may not see its folder, or not
/// in the same state.
Run run_of(net::Endpoint& endpoint, const std::string& folder, int console_fd) {
  nlohmann::json mine;
  if (endpoint.rank() == 0) {
    const plan::TrainConfig config = read_config(folder);
    const auto say = [console_fd](const std::string& line) {
      ::dprintf(console_fd, "%s\n", line.c_str());
    };
    mine = {{"folder", folder},
            {"config", plan::to_json(config)},
            {"resume_from", resume_from(folder, config, say)}};
  }
  const std::string said = endpoint.world()->gather_text(mine.dump())[0];
  const nlohmann::json run = nlohmann::json::parse(said, nullptr, /*allow_exceptions=*/false);
  if (!run.is_object()) throw CommError("rank 0 was started otherwise: it has no run folder.");
  return {.folder = run.at("folder").get<std::string>(),
          .config = plan::from_json(run.at("config")),
          .resume_from = run.at("resume_from").get<std::string>()};
}

/// What `lockstep verify`, `lockstep bisect` and tests ask of the ranks beside training.
struct Verification {
  std::string witness_folder;  // what was computed is written there; empty: nowhere
  int64_t witness_from = 0;    // from the step after so many on
  int64_t stop_after = -1;     // steps; -1: at the run's end
  std::string plant;           // a name of base/planted_fault.h; empty: none
  std::string kill_at;         // "RANK:POINT", a rank's last write point; empty: none
};

/// Throws UsageError for anything but "RANK:POINT".
void kill_at(const std::string& place, int rank) {
  int of_rank = -1;
  int point = -1;
  char rest = 0;
  if (std::sscanf(place.c_str(), "%d:%d%c", &of_rank, &point, &rest) != 2 || point < 0) {
    throw UsageError(base::str("--kill-at=", place, " is no RANK:POINT."));
  }
  if (of_rank == rank) files::write_points_left = point;
}

/// `folder`: empty where rank 0 is on another host.
int train(const Environment& environment, const std::string& folder, const TaskFactories& tasks,
          const Verification& verification) {
  base::planted_fault = base::fault_named(verification.plant);
  if (!verification.kill_at.empty()) kill_at(verification.kill_at, environment.rank);
  const Requests& requests = catch_requests();
  return run_ranks(environment, [&](net::Endpoint& endpoint) {
    const Run run = run_of(endpoint, folder, environment.console_fd);
    Trainer trainer({.config = run.config,
                     .run_folder = run.folder,
                     .console_fd = environment.console_fd,
                     .stop_requested = &requests.stop,
                     .save_requests = &requests.saves,
                     .witness_folder = verification.witness_folder,
                     .witness_from = verification.witness_from,
                     .tasks = tasks,
                     .resume_from = run.resume_from,
                     .stop_after = verification.stop_after},
                    endpoint);
    return trainer.run().stopped ? kStoppedOnRequest : 0;
  });
}

EvaluationResult evaluate_on(net::Endpoint& endpoint, Task& task, const plan::TrainConfig& config,
                             RankContext context) {
  context.world = std::make_shared<ProcessGroup>(endpoint.world());
  return evaluate(task,
                  {.samples = config.data.eval_batches * config.data.global_batch,
                   .micro_batch = config.data.micro_batch},
                  context);
}

/// A residual network, on pictures.
int evaluate_pictures(net::Endpoint& endpoint, const checkpoints::Weights& weights,
                      const std::string& data, bool as_json) {
  const checkpoints::WeightOrigin& info = weights.origin();
  const auto task =
      ImageTask::open_valid(info.config, data.empty() ? info.config.data.valid : data);
  const auto zeros = [](const std::string&) { return plan::Init{}; };
  state::ParamStore params(task->module(), task->ties(), zeros, {});
  load_parameters(weights, params, task->running_values());
  const EvaluationResult evaluated = evaluate_on(endpoint, *task, info.config, {});
  if (endpoint.rank() != 0) return 0;
  const std::string& path = task->validation_data().path();
  if (as_json) {
    const nlohmann::json result = {
        {"val_loss", evaluated.loss},  {"val_accuracy", evaluated.accuracy},
        {"pictures", evaluated.terms}, {"data", path},
        {"step", info.step},           {"param_digest", info.param_digest}};
    print(result.dump());
  } else {
    print(base::str("validation loss ", evaluated.loss, " nats a picture, ",
                    base::fixed_text(1e2 * evaluated.accuracy, 2), " % right over ",
                    evaluated.terms, " pictures of ", path));
  }
  return 0;
}

/// `logits`: a file for what the model says of the data's first tokens; empty: none.
int evaluate_file(const Environment& environment, const std::string& file, const std::string& data,
                  const std::string& logits, bool as_json) {
  return run_ranks(environment, [&](net::Endpoint& endpoint) {
    const auto weights = checkpoints::open_weights(file);
    if (weights->origin().config.model.family == "resnet") {
      return evaluate_pictures(endpoint, *weights, data, as_json);
    }
    const LoadedModel loaded = load_model(*weights);
    const plan::TrainConfig& config = loaded.info.config;
    const auto tokens = input::TokenFile::open(data.empty() ? config.data.valid : data);
    LanguageTask task(loaded.model, nullptr, tokens, config.model.context, loaded.info.vocab);
    RankContext context;
    context.tensor = loaded.tensor;
    context.sequence = loaded.sequence;
    const EvaluationResult evaluated = evaluate_on(endpoint, task, config, context);
    if (endpoint.rank() != 0) return 0;
    if (!logits.empty()) {
      write_logits(logits, *loaded.model, *tokens, config.model.context, context);
    }
    const double loss = evaluated.loss;
    if (as_json) {
      const nlohmann::json result = {{"val_loss", loss},
                                     {"bits_per_token", loss / std::log(2.0)},
                                     {"perplexity", std::exp(loss)},
                                     {"tokens", evaluated.terms},
                                     {"data", tokens->path()},
                                     {"step", loaded.info.step},
                                     {"param_digest", loaded.info.param_digest}};
      print(result.dump());
    } else {
      print(base::str("validation loss ", loss, " nats a token (", loss / std::log(2.0),
                      " bits, perplexity ", std::exp(loss), ") over ", evaluated.terms,
                      " tokens of ", tokens->path()));
    }
    return 0;
  });
}

/// `tokenizer_name` empty: the one that the model was trained with.
int generate_text(const Environment& environment, const std::string& file,
                  const std::string& prompt, const std::string& tokenizer_name,
                  GenerationOptions options) {
  return run_ranks(environment, [&](net::Endpoint&) {
    const LoadedModel loaded = load_model(file, /*in_grains=*/false);
    const plan::TrainConfig& config = loaded.info.config;
    options.context = config.model.context;
    const auto tokenizer =
        files::open_tokenizer(tokenizer_name.empty() ? config.data.tokenizer : tokenizer_name);
    const std::vector<int64_t> ids = tokenizer->encode(prompt.empty() ? "\n" : prompt);
    const int64_t largest = *std::max_element(ids.begin(), ids.end());
    if (largest >= loaded.info.vocab) {
      throw UsageError(base::str("the tokenizer ", tokenizer->name(), " makes an id ", largest,
                                 " of the prompt, but the model knows ", loaded.info.vocab,
                                 ".\n  Name the model's own: --tokenizer NAME"));
    }
    const std::vector<int64_t> made = generate(*loaded.model, ids, options);
    print(prompt + tokenizer->decode_what_is_known(made));
    return 0;
  });
}

int run(int argc, char** argv, const TaskFactories& tasks) {
  CLI::App app("One rank of a Lockstep job; started by `lockstep`.", "lockstep-worker");
  app.require_subcommand(1);
  Environment environment = read_environment();
  environment.endpoint.engine = message_engine(environment);
  int code = 0;

  std::string run_folder;
  CLI::App* train_command = app.add_subcommand("train", "Train as the run folder's config says");
  train_command->add_option("RUN_FOLDER", run_folder, "absent where rank 0 is on another host");
  Verification verification;
  train_command->add_option("--witness", verification.witness_folder,
                            "folder for what each rank computed in each step");
  train_command->add_option("--witness-from", verification.witness_from,
                            "from the step after so many on");
  train_command->add_option("--stop-after", verification.stop_after,
                            "stop, with a checkpoint, where so many steps are done");
  train_command->add_option("--plant", verification.plant, "a fault, for tests of verification");
  train_command->add_option("--kill-at", verification.kill_at,
                            "RANK:POINT, for tests of crashes: SIGKILL where that rank passes its "
                            "POINT-th write point, from 0 (files/write_point.h)");
  train_command->callback([&] { code = train(environment, run_folder, tasks, verification); });

  std::string file;
  std::string data;
  std::string logits;
  bool as_json = false;
  CLI::App* eval_command = app.add_subcommand("eval", "Validation loss of a saved model");
  eval_command->add_option("FILE", file)->required();
  eval_command->add_option("--data", data);
  eval_command->add_option("--logits", logits);
  eval_command->add_flag("--json", as_json);
  eval_command->callback([&] { code = evaluate_file(environment, file, data, logits, as_json); });

  std::string prompt;
  std::string tokenizer;
  GenerationOptions generation;
  CLI::App* generate_command = app.add_subcommand("generate", "Text from a saved model");
  generate_command->add_option("FILE", file)->required();
  generate_command->add_option("--prompt", prompt);
  generate_command->add_option("--tokenizer", tokenizer);
  generate_command->add_option("--tokens", generation.tokens);
  generate_command->add_option("--temperature", generation.temperature);
  generate_command->add_option("--top-k", generation.top_k);
  generate_command->add_option("--seed", generation.seed);
  generate_command->callback(
      [&] { code = generate_text(environment, file, prompt, tokenizer, generation); });

  app.add_subcommand("version", "LibTorch and kernels in use")->callback([] {
    std::cout << "LibTorch " << TORCH_VERSION << ", kernels " << kernel_set(/*fused=*/true)
              << " for " << instruction_set() << std::endl;
  });

  CLI11_PARSE(app, argc, argv);
  return code;
}

}  // namespace
}  // namespace lockstep::worker

namespace lockstep {

int worker_main(int argc, char** argv, const TaskFactories& tasks) {
  // A broken pipe or a full file is an error that a write reports, not a reason to vanish.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  worker::dump_on_request();
  memory::install_counting_allocator();
  torch_inside::install_gemm_counter();
  // One compute thread a rank: another count has other bits in some of LibTorch's kernels.
  at::set_num_threads(1);
  try {
    return worker::run(argc, argv, tasks);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lockstep-worker: %s\n", error.what());
    return 1;
  }
}

}  // namespace lockstep
