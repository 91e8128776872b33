/// What a run leaves to read: the progress line, metrics.jsonl, TensorBoard events, and /metrics
/// for Prometheus on request. Rank 0 only.
///
///   metrics.jsonl   one object a line; for each step
///                   {"step", "epoch", "loss", "grad_norm", "lr", "seconds", "tokens",
///                    "tokens_per_second", "mfu", "memory_bytes": {kind: n},
///                    "comm": {"bytes", "seconds", "wait_seconds"}, "phase_seconds": {phase: s},
///                    "loss_scale", "skipped_steps"}, and "noise_scale" where it is known,
///                   "param_digest" every log.digest_every steps,
///                   for each evaluation {"step", "val_loss"}, and "val_loss_ema" with an average,
///                   "val_accuracy" where the task has it
///
/// In a run that goes on from a checkpoint each step has one line: what stood behind it is dropped.
///
/// A full disk does not throw a run's work away: the first line that cannot be written is kept as
/// `failure`, and the trainer stops after the step at hand, saves, and then fails with it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "lockstep/files/event_file.h"
#include "lockstep/files/line_file.h"
#include "lockstep/train/metrics_page.h"
#include "lockstep/train/metrics_server.h"
#include "lockstep/train/step_report.h"

namespace lockstep {

struct RunLogOptions {
  std::string folder;  // of the run
  int console_fd = 2;
  int64_t steps = 0;
  /// That the run has made before, if it goes on: the lines of those behind them are dropped.
  int64_t steps_before = 0;
  int64_t every = 10;  // progress lines; a terminal is updated every step
  bool tensorboard = true;
  std::string http = {};  // HOST:PORT of /metrics; empty: none
  int ranks = 1;
  std::string engine = "shm";
  std::string unit = "tokens";  // of the progress line's rate
};

class RunLog {
 public:
  /// Throws StateError if a file cannot be created in the folder, EnvironmentError if the address
  /// of /metrics cannot be served.
  explicit RunLog(const RunLogOptions& options);

  void step(const StepReport& report);
  /// `of_average`: of the parameters' moving average; NaN: there is none.
  /// `accuracy`: the share of samples that were right; NaN: the task has none.
  void evaluation(int64_t step, double val_loss, double of_average = StepReport::kNone,
                  double accuracy = StepReport::kNone);
  /// The last step that was evaluated, here or before; 0: none was.
  int64_t last_evaluation() const { return last_evaluation_; }
  /// A line of its own on the console.
  void say(const std::string& line);

  /// Why metrics.jsonl ends early: file, bytes and reason. Empty: it does not.
  const std::string& failure() const { return failure_; }

 private:
  void write_line(const std::string& json);
  /// Event files are a view of metrics.jsonl: where they cannot be written, the run says so and
  /// goes on without them.
  void with_events(const std::function<void(files::EventFile&)>& write);
  void progress(const StepReport& report);

  RunLogOptions options_;
  bool terminal_;
  bool line_open_ = false;  // a progress line without its line feed
  int64_t last_evaluation_ = 0;
  files::LineFile metrics_;
  std::string failure_;
  std::unique_ptr<files::EventFile> events_;
  MetricsPage page_;
  std::unique_ptr<MetricsServer> server_;  // after the page that it shows
  double seconds_ = 0;                     // of all steps made here
  int64_t steps_ = 0;
};

}  // namespace lockstep
