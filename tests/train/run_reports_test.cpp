// What a real run reports of itself: memory by kind, the profile, and why it ended.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "lockstep/base/error.h"
#include "lockstep/memory/counting_allocator.h"
#include "lockstep/torch_inside/gemm_counter.h"
#include "lockstep/train/model_file.h"
#include "tests/files/on_disk.h"
#include "tests/train/tiny_run.h"

namespace lockstep {
namespace {

using testing::TempFolder;
using testing::TinyRun;

class RunReports : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    memory::install_counting_allocator();
    torch_inside::install_gemm_counter();
  }
};

/// A run whose folder outlives it.
class KeptRun {
 public:
  explicit KeptRun(plan::TrainConfig config) : config_(std::move(config)) {}

  /// The summary; `before_run` is called on every rank once the trainer stands.
  nlohmann::json run(int ranks, const std::atomic<bool>* stop = nullptr,
                     const std::function<void(Trainer&)>& before_run = {}) {
    const int console =
        ::open(folder_.file("console").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    std::string summary;
    net::run_on_threads(ranks, [&](const std::shared_ptr<net::Group>& world) {
      Trainer trainer({.config = config_,
                       .run_folder = folder_.path(),
                       .console_fd = console,
                       .stop_requested = stop},
                      world->endpoint());
      if (before_run) before_run(trainer);
      const TrainResult result = trainer.run();
      if (world->rank() == 0) {
        summary = result.summary;
        stopped = result.stopped;
      }
    });
    ::close(console);
    return nlohmann::json::parse(summary);
  }

  std::string file(const std::string& name) const { return folder_.file(name); }
  std::string text(const std::string& name) const { return on_disk::get(file(name)); }

  bool stopped = false;

 private:
  plan::TrainConfig config_;
  TempFolder folder_;
};

/// The closed forms of the store's headers: 4 bytes an element of the flat buffer for parameters,
/// as many for each term and scratch level of gradients, 8 a trained element for the moments.
TEST_F(RunReports, PeakBytesByKindAreTheClosedForms) {
  TinyRun run;
  for (const int ranks : {1, 2, 4}) {
    int64_t flat = 0, scratch = 0, tied_uses = 0;
    run.run_on(1, [&](Trainer& trainer, int) {
      flat = trainer.params().buckets().numel;
      for (const plan::Param& param : trainer.params().table().params) {
        tied_uses += param.numel * (static_cast<int64_t>(param.uses.size()) - 1);
      }
    });
    // 4 leaves: rank r's run of 4 / ranks of them folds on log2 levels besides its term.
    scratch = ranks == 1 ? 2 : ranks == 2 ? 1 : 0;
    const int64_t trained = [&] {
      int64_t count = 0;
      run.run_on(1, [&](Trainer& trainer, int) { count = trainer.params().table().numel(); });
      return count;
    }();
    const nlohmann::json summary = run.run(ranks);
    for (const auto& rank : summary["ranks"]) {
      const auto& peak = rank["peak_bytes"];
      EXPECT_EQ(peak["parameters"], 4 * flat);
      EXPECT_EQ(peak["gradients"], 4 * flat * (1 + scratch) + 4 * tied_uses) << ranks << " ranks";
      EXPECT_EQ(peak["optimizer"], 8 * trained);
      // At least the logits of a micro-batch and their gradient; not many times the model.
      const int64_t logits = 4 * 2 * 11 * 67;
      EXPECT_GT(peak["activations"].get<int64_t>(), 2 * logits);
      EXPECT_LT(peak["activations"].get<int64_t>(), 400 * logits);
      EXPECT_EQ(peak.size(), 7u);
    }
  }
}

TEST_F(RunReports, TheLinesMemoryIsTheSumOfKindsAndPhasesAreTheStep) {
  TinyRun run;
  run.config.run.steps = 3;
  KeptRun kept(run.config);
  kept.run(2);
  std::ifstream metrics(kept.file("metrics.jsonl"));
  int steps = 0;
  for (std::string line; std::getline(metrics, line);) {
    const auto report = nlohmann::json::parse(line);
    if (!report.contains("loss")) continue;
    ++steps;
    double sum = 0;
    for (const auto& [name, seconds] : report["phase_seconds"].items())
      sum += seconds.get<double>();
    // A step of some milliseconds: one that the system interrupts has a millisecond between its
    // parts.
    const auto seconds = report["seconds"].get<double>();
    EXPECT_NEAR(sum, seconds, std::max(0.05 * seconds, 2e-3));
    EXPECT_GT(report["phase_seconds"]["backward"].get<double>(), 0);
    EXPECT_GT(report["comm"]["bytes"].get<int64_t>(), 0);
    EXPECT_EQ(report["memory_bytes"]["optimizer"].get<int64_t>() % 8, 0);
    EXPECT_GT(report["memory_bytes"]["parameters"].get<int64_t>(), 0);
  }
  EXPECT_EQ(steps, 3);
  EXPECT_NE(kept.text("console").find("GFLOP/s a rank"), std::string::npos);
}

/// Three witnesses of the operations: 2 m n k of each product by hand, the counter, the profile.
TEST_F(RunReports, TheProfileAgreesWithTheCounterAndTheClosedForm) {
  TinyRun run;
  run.config.run.steps = 4;  // the first is not watched
  run.config.log.profile = true;
  KeptRun kept(run.config);
  const nlohmann::json summary = kept.run(1);
  const auto profile = nlohmann::json::parse(kept.text("profile.json"));
  EXPECT_EQ(profile["steps"], 3);
  // Both counts hold one evaluation: their difference is three steps.
  run.config.run.steps = 1;
  run.config.log.profile = false;
  const auto flops_of = [](const nlohmann::json& of) {
    return of["ranks"][0]["gemm_flops"].get<int64_t>();
  };
  EXPECT_EQ(profile["flops"].get<int64_t>(), flops_of(summary) - flops_of(run.run(1)));
  const int64_t tokens = 3 * 8 * 11;  // of three steps
  const int64_t c_attn = 2 * tokens * 24 * 72;
  double seconds = 0;
  bool found_forward = false, found_backward = false;
  for (const auto& row : profile["rows"]) {
    seconds += row["seconds"].get<double>();
    if (row["module"] != "h.1.attn.c_attn") continue;
    if (row["phase"] == "forward") {
      found_forward = true;
      EXPECT_EQ(row["flops"].get<int64_t>(), c_attn);
      EXPECT_EQ(row["bytes_written"].get<int64_t>(), 4 * tokens * 72);
      EXPECT_EQ(row["calls"], 3 * 4);
    } else {
      found_backward = true;
      EXPECT_EQ(row["flops"].get<int64_t>(), 2 * c_attn);
    }
  }
  EXPECT_TRUE(found_forward && found_backward) << profile.dump(1);
  EXPECT_NEAR(seconds, profile["seconds"].get<double>(), 1e-9);
  // The residual that docs/concepts/metrics.md states.
  EXPECT_LT(profile["residual_seconds"].get<double>(), 0.1 * seconds);
  const std::string console = kept.text("console");
  EXPECT_NE(console.find("h.0.mlp.c_fc"), std::string::npos) << console;
  EXPECT_NE(console.find("(update)"), std::string::npos) << console;
}

TEST_F(RunReports, AProfiledRunHasTheSameBits) {
  TinyRun run;
  const std::string plain = run.run(2)["param_digest"];
  run.config.log.profile = true;
  EXPECT_EQ(run.run(2)["param_digest"], plain);
}

/// BAD-6: one window of the data has an embedding that overflows, on the rank that has it.
TEST_F(RunReports, BAD_6_ALossThatIsNoNumberNamesStepTensorAndSamples) {
  TinyRun run;
  run.config.data.shuffle = false;
  run.config.run.steps = 10;
  run.config.optim.lr = 1e30;
  std::string message;
  try {
    run.run(2);
  } catch (const TrainingError& error) {
    message = error.what();
    EXPECT_EQ(error.exit_code(), 1);
  }
  for (const char* part : {"of 2] step ", "loss ", "rank 0's samples 0 to ", "is not finite"}) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
}

TEST_F(RunReports, BAD_6_TheRankWhoseSamplesOverflowIsNamed) {
  TinyRun run;
  run.config.data.shuffle = false;
  run.config.run.steps = 2;
  run.config.model.tied = false;
  run.config.numerics.kernels = "aten";  // our norms sum in fp64, and would not overflow
  // Token 66 occurs once: in sample 5 of the first step, which rank 1 of 2 computes.
  {
    std::fstream tokens(run.config.data.train, std::ios::in | std::ios::out | std::ios::binary);
    const uint16_t rare = 66;
    tokens.seekp(2 * (5 * 11 + 3));
    tokens.write(reinterpret_cast<const char*>(&rare), 2);
  }
  KeptRun kept(run.config);
  std::string message;
  try {
    kept.run(2, nullptr, [](Trainer& trainer) {
      const plan::ParamTable& table = trainer.params().table();
      for (size_t p = 0; p < table.params.size(); ++p) {
        if (table.params[p].name != "wte.weight") continue;
        at::Tensor weight = trainer.params().use(static_cast<int>(p), 0);
        const at::NoGradGuard no_grad;
        // Finite, but the difference of two is not: layer norm overflows.
        weight.select(0, 66).narrow(0, 0, 12).fill_(3e38);
        weight.select(0, 66).narrow(0, 12, 12).fill_(-3e38);
      }
    });
  } catch (const TrainingError& error) {
    message = error.what();
  }
  EXPECT_NE(message.find("step 1:"), std::string::npos) << message;
  EXPECT_NE(message.find("the loss of rank 1's samples 4 to 5 of the step is not finite, every "
                         "weight is; the first gradient that is not: \""),
            std::string::npos)
      << message;
}

/// BAD-8: the disk fills while metrics are written. What was trained is saved, whole, and the run
/// then fails naming file and bytes.
TEST_F(RunReports, BAD_8_AFullDiskWhileLoggingLosesNoTraining) {
  TinyRun run;
  run.config.run.steps = 100'000;
  KeptRun kept(run.config);
  std::string message;
  int code = 0;
  {
    const on_disk::FileSizeLimit full(150'000);  // the model has some 60 KiB
    try {
      kept.run(2);
    } catch (const StateError& error) {
      message = error.what();
      code = error.exit_code();
    }
  }
  EXPECT_EQ(code, 6) << message;
  EXPECT_NE(message.find("metrics.jsonl: "), std::string::npos) << message;
  EXPECT_NE(message.find("bytes cannot be written"), std::string::npos) << message;
  const LoadedModel saved = load_model(kept.file("final.safetensors"));
  EXPECT_GT(saved.info.step, 100);
  EXPECT_EQ(saved.params->digest().text(), saved.info.param_digest);
  std::ifstream metrics(kept.file("metrics.jsonl"));
  int64_t last = 0;
  for (std::string line; std::getline(metrics, line);) last = nlohmann::json::parse(line)["step"];
  EXPECT_EQ(saved.info.step, last + 1) << "it stopped after the step whose line was lost";
}

/// The evaluation after the last step can be stopped: the parameters were saved before it.
TEST_F(RunReports, ARequestEndsTheLastEvaluationAndTheModelIsThere) {
  TinyRun run;
  run.config.run.steps = 0;  // the request is there before the evaluation begins
  run.config.data.eval_batches = 3;
  const std::atomic<bool> asked{true};
  KeptRun kept(run.config);
  const nlohmann::json summary = kept.run(3, &asked);
  EXPECT_TRUE(kept.stopped);
  EXPECT_TRUE(summary["val_loss"].is_null());
  EXPECT_EQ(load_model(kept.file("final.safetensors")).info.param_digest, summary["param_digest"]);
}

}  // namespace
}  // namespace lockstep
