/// What a run leaves to read: the progress line, metrics.jsonl, TensorBoard events. Rank 0 only.
///
///   metrics.jsonl   one object a line: {"step", "loss", "grad_norm", "lr", "seconds", "tokens"}
///                   for each step, {"step", "val_loss"} for each evaluation
#pragma once

#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <string>

#include "lockstep/files/event_file.h"

namespace lockstep {

struct StepReport {
  int64_t step = 0;  // done, from 1
  double loss = 0;   // mean nats per token of the step
  double grad_norm = 0;
  double lr = 0;
  double seconds = 0;
  int64_t tokens = 0;  // of the step, all ranks
  double tokens_per_second = 0;
  double mfu = 0;            // 0..1
  int64_t memory_bytes = 0;  // of rank 0: tensors and shared heap
  double comm_share = 0;     // collectives' time / step time
  double comm_hidden = 0;    // the part of it that backward hid, 0..1
};

struct RunLogOptions {
  std::string folder;  // of the run
  int console_fd = 2;
  int64_t steps = 0;
  int64_t every = 10;  // progress lines; a terminal is updated every step
  bool tensorboard = true;
};

class RunLog {
 public:
  /// Throws StateError if a file cannot be created in the folder.
  explicit RunLog(const RunLogOptions& options);

  void step(const StepReport& report);
  void evaluation(int64_t step, double val_loss);
  /// A line of its own on the console.
  void say(const std::string& line);

 private:
  void write_line(const std::string& json);
  /// Event files are a view of metrics.jsonl: where they cannot be written, the run says so and
  /// goes on without them.
  void with_events(const std::function<void(files::EventFile&)>& write);
  void progress(const StepReport& report);

  RunLogOptions options_;
  bool terminal_;
  bool line_open_ = false;  // a progress line without its line feed
  std::ofstream metrics_;
  std::unique_ptr<files::EventFile> events_;
  double seconds_ = 0;  // of all steps
  int64_t steps_ = 0;
};

}  // namespace lockstep
