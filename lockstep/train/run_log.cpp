#include "lockstep/train/run_log.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/number_text.h"
#include "lockstep/base/str.h"
#include "lockstep/train/detail/earlier_lines.h"
#include "lockstep/train/progress_line.h"

namespace lockstep {
namespace {

using torch_inside::kPhaseNames;

/// Of the terminal behind `fd`; 0: unknown.
int columns_of(int fd) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

nlohmann::json json_of(const StepReport& report) {
  nlohmann::json memory = nlohmann::json::object();
  for (size_t i = 0; i < report.memory.size(); ++i) {
    memory[memory::kKindNames[i]] = report.memory[i];
  }
  nlohmann::json phases = nlohmann::json::object();
  for (size_t i = 0; i < report.phases.size(); ++i) phases[kPhaseNames[i]] = report.phases[i];
  nlohmann::json json = {{"step", report.step},
                         {"epoch", report.epoch},
                         {"loss", report.loss},
                         {"grad_norm", report.grad_norm},
                         {"lr", report.lr},
                         {"seconds", report.seconds},
                         {"tokens", report.tokens},
                         {"tokens_per_second", report.tokens_per_second},
                         {"mfu", report.mfu},
                         {"memory_bytes", std::move(memory)},
                         {"comm",
                          {{"bytes", report.comm_bytes},
                           {"seconds", report.comm_seconds},
                           {"wait_seconds", report.comm_wait_seconds}}},
                         {"phase_seconds", std::move(phases)},
                         {"loss_scale", report.loss_scale},
                         {"skipped_steps", report.skipped}};
  if (!std::isnan(report.noise_scale)) json["noise_scale"] = report.noise_scale;
  if (!report.param_digest.empty()) json["param_digest"] = report.param_digest;
  return json;
}

files::LineFile metrics_file(const RunLogOptions& options, int64_t& last_evaluation) {
  const std::string path = options.folder + "/metrics.jsonl";
  if (options.steps_before == 0) return files::LineFile(path);
  last_evaluation = detail::keep_earlier_lines(path, options.steps_before);
  return files::LineFile(path, files::LineFile::Start::behind_what_is_there);
}

/// Before the slash stands the section of TensorBoard that shows the curve.
void add_scalars(files::EventFile& events, const StepReport& report) {
  const auto add = [&](const std::string& tag, double value) {
    events.add_scalar(tag, report.step, value);
  };
  add("train/loss", report.loss);
  add("train/grad_norm", report.grad_norm);
  add("train/learning_rate", report.lr);
  add("train/epoch", static_cast<double>(report.epoch));
  add("speed/step_seconds", report.seconds);
  add("speed/tokens_per_second", report.tokens_per_second);
  add("speed/mfu", report.mfu);
  add("communication/share", report.comm_share());
  add("communication/hidden", report.comm_hidden());
  add("communication/bytes", static_cast<double>(report.comm_bytes));
  add("memory/bytes", static_cast<double>(report.memory_bytes()));
  if (report.loss_scale != 1) add("train/loss_scale", report.loss_scale);
  if (report.skipped > 0) add("train/skipped_steps", static_cast<double>(report.skipped));
  if (!std::isnan(report.noise_scale)) add("train/noise_scale", report.noise_scale);
  for (size_t i = 0; i < report.phases.size(); ++i) {
    add(std::string("time/") + kPhaseNames[i], report.phases[i]);
  }
}

}  // namespace

RunLog::RunLog(const RunLogOptions& options)
    : options_(options),
      terminal_(::isatty(options.console_fd) == 1),
      metrics_(metrics_file(options, last_evaluation_)),
      page_(options.ranks, options.engine) {
  if (options.tensorboard) {
    events_ = std::make_unique<files::EventFile>(options.folder);
    if (options.steps_before > 0) events_->add_restart(options.steps_before + 1);
  }
  if (options.http.empty()) return;
  server_ = std::make_unique<MetricsServer>(options.http, [this] { return page_.text(); });
  say("metrics at " + server_->url());
}

void RunLog::step(const StepReport& report) {
  seconds_ += report.seconds;
  ++steps_;
  write_line(json_of(report).dump());
  page_.step(report);
  with_events([&](files::EventFile& events) { add_scalars(events, report); });
  const bool due = options_.every > 0 && report.step % options_.every == 0;
  if (terminal_ || due || report.step == options_.steps) progress(report);
  if (due) with_events([](files::EventFile& events) { events.flush(); });
}

void RunLog::progress(const StepReport& report) {
  const double left =
      seconds_ / static_cast<double>(steps_) * static_cast<double>(options_.steps - report.step);
  // A line as wide as the terminal would wrap, and the next one could not take its place.
  const int columns = terminal_ ? columns_of(options_.console_fd) - 1 : 0;
  const std::string line = progress_line(report, {.steps = options_.steps,
                                                  .seconds_left = left,
                                                  .columns = std::max(columns, 0),
                                                  .unit = options_.unit});
  if (terminal_) {
    ::dprintf(options_.console_fd, "\r\033[K%s", line.c_str());
    line_open_ = true;
    if (report.step == options_.steps) say("");
  } else {
    say(line);
  }
}

void RunLog::evaluation(int64_t step, double val_loss, double of_average, double accuracy) {
  const bool averages = !std::isnan(of_average);
  nlohmann::json line = {{"step", step}, {"val_loss", val_loss}};
  if (averages) line["val_loss_ema"] = of_average;
  const bool counts = !std::isnan(accuracy);
  if (counts) line["val_accuracy"] = accuracy;
  write_line(line.dump());
  last_evaluation_ = step;
  page_.evaluation(val_loss, of_average);
  with_events([&](files::EventFile& events) {
    events.add_scalar("validation/loss", step, val_loss);
    if (averages) events.add_scalar("validation/loss_ema", step, of_average);
    if (counts) events.add_scalar("validation/accuracy", step, accuracy);
    events.flush();
  });
  say(base::str("step ", step, "/", options_.steps, " | validation loss ",
                base::fixed_text(val_loss, 4),
                averages ? base::str(", of the average ", base::fixed_text(of_average, 4)) : "",
                counts ? base::str(", ", base::fixed_text(1e2 * accuracy, 2), " % right") : ""));
}

void RunLog::with_events(const std::function<void(files::EventFile&)>& write) {
  if (!events_) return;
  try {
    write(*events_);
  } catch (const StateError& error) {
    events_.reset();
    say(base::str("warning: no more TensorBoard events: ", error.what()));
  }
}

void RunLog::say(const std::string& line) {
  if (line_open_) ::dprintf(options_.console_fd, "\n");
  line_open_ = false;
  if (!line.empty()) ::dprintf(options_.console_fd, "%s\n", line.c_str());
}

void RunLog::write_line(const std::string& json) {
  if (!failure_.empty()) return;
  try {
    metrics_.add(json);
  } catch (const StateError& error) {
    failure_ = base::str(error.what(),
                         "\n  Free space on the disk, or choose another --set run.dir. Training "
                         "stopped after this step and saved what it had.");
    say(base::str("warning: stopping after this step: ", error.what()));
  }
}

}  // namespace lockstep
